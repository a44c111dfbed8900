from __future__ import annotations

import contextlib
import functools
import json
import pathlib
from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import Any

import pytest

from gym_trio.collection import PreparedRun, RunOptions, RunReport, collect, prepare_run
from gym_trio.rollouts import RolloutAttempt, open_rollout_stream

Run = Callable[[RolloutAttempt], Awaitable[Any]]


@pytest.fixture
def put(tmp_path: pathlib.Path) -> Callable[..., pathlib.Path]:
    """Write rows, or raw text, to a file below the test's folder."""

    def write(name: str, rows: str | bytes | Iterable[Any]) -> pathlib.Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(rows, bytes):
            path.write_bytes(rows)
        else:
            path.write_text(rows if isinstance(rows, str) else "".join(json.dumps(row) + "\n" for row in rows))
        return path

    return write


@pytest.fixture
def read() -> Callable[[pathlib.Path], list[dict[str, Any]]]:
    """The rows of a file; an absent file has none."""

    def rows(path: pathlib.Path) -> list[dict[str, Any]]:
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    return rows


@pytest.fixture
def tasks() -> Callable[..., list[dict[str, Any]]]:
    """Rows of distinct tasks."""

    def make(count: int, **more: Any) -> list[dict[str, Any]]:
        return [{"responses_create_params": {"input": f"question {n}"}, "n": n, **more} for n in range(count)]

    return make


@pytest.fixture
def prepare(tmp_path: pathlib.Path) -> Callable[..., contextlib.AbstractContextManager[PreparedRun]]:
    """`prepare_run` with an output in the test's folder."""

    def prepared(rows: Any, **options: Any) -> contextlib.AbstractContextManager[PreparedRun]:
        return prepare_run(RunOptions(**{"output": tmp_path / "out" / "r.jsonl", "rows": rows, **options}))

    return prepared


@pytest.fixture
def materialized(prepare: Callable[..., Any]) -> Callable[..., list[dict[str, Any]]]:
    """The rows that a run would send, in their order."""

    def rows(given: Any, **options: Any) -> list[dict[str, Any]]:
        with prepare(given, **options) as run:
            return list(run.rows())

    return rows


async def answer(attempt: RolloutAttempt) -> dict[str, Any]:
    """A rollout that scores 1."""
    return {**attempt.row, "response": {"output": []}, "reward": 1.0}


@pytest.fixture
def go(prepare: Callable[..., Any]) -> Callable[..., Awaitable[RunReport]]:
    """Prepare a run and collect it."""

    async def collected(
        rows: Any, run: Run = answer, *, stream: dict[str, Any] | None = None, more: Any = None, **options: Any
    ) -> RunReport:
        with prepare(rows, **options) as prepared:
            opened = functools.partial(open_rollout_stream, run=run, **(stream or {}))
            return await collect(prepared, opened, **(more or {}))

    return collected


@pytest.fixture
def indices() -> Callable[[Iterable[dict[str, Any]]], list[tuple[int, int]]]:
    """The (task, repeat) of each row."""

    def of(rows: Iterable[dict[str, Any]]) -> list[tuple[int, int]]:
        return [(row["_ng_task_index"], row["_ng_rollout_index"]) for row in rows]

    return of


def chunks(text: bytes, size: int) -> Iterator[bytes]:
    for at in range(0, len(text), size):
        yield text[at : at + size]
