"""``aggregate_metrics.json`` from a run's files, or from those of many shards."""

from __future__ import annotations

import os
import pathlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import attrs
import trio

from ..errors import RowError, UsageError
from ..metrics import COUNTED_AS_ZERO, Aggregate, Aggregator, Hooks, Source, SourceAggregate
from ..metrics import Coverage as MeasuredCoverage
from ._entries import GROUPS
from ._jsonl import dump, replacing
from ._ledger import FAILURE_CLASS
from ._merge import check_merged, merge_rows
from ._paths import RunFiles, prepare_folder
from ._prepare import PreparedRun
from ._records import odd_classes
from ._repeated import RepeatedLines, told
from ._shards import rollout_files, sidecars, whole_rows

_CHECK_EVERY = 500
FindHooks = Callable[[Source], Hooks | None]


@attrs.frozen(kw_only=True)
class Aggregated:
    """What an aggregation made. ``entries`` are those of the file without their ``group_level_metrics``."""

    entries: list[dict[str, Any]]
    coverage: MeasuredCoverage
    inputs: tuple[pathlib.Path, ...]
    path: pathlib.Path | None  # the aggregate metrics, where they were written
    merged: pathlib.Path | None  # the rollouts of all inputs in one file, where that was asked for
    notes: tuple[str, ...]

    @property
    def line(self) -> str:
        """How much of the run the metrics cover."""
        return self.coverage.line


async def aggregate_run(run: PreparedRun, *, hooks: FindHooks | None = None) -> list[dict[str, Any]]:
    """The aggregate metrics of a run that has ended, written beside its output. For `collect`'s ``aggregate``.

    **Cancellation**: soon, while rows are read; nothing is written then.
    """
    options = run.options

    def work() -> list[dict[str, Any]]:
        made = aggregate_rows(
            [run.files.output],
            hooks=hooks,
            count_failure_classes_as_zero=options.count_failure_classes_as_zero,
            count_missing_rollouts_as_zero=options.count_missing_rollouts_as_zero,
            notes=[],
            check=trio.from_thread.check_cancelled,
        )
        return write_aggregate(run.files.aggregate, made, zeros_of(run))

    return await trio.to_thread.run_sync(work)


Zeros = dict[str, Any] | None


def zeros_of(run: PreparedRun) -> Zeros:
    """What the entries of the run's aggregate say of scores that nobody gave."""
    options = run.options
    return _zeros(options.count_failure_classes_as_zero, options.count_missing_rollouts_as_zero)


def _zeros(classes: Iterable[str], missing: bool) -> Zeros:
    named = sorted(set(classes))
    return {"failure_classes": named, "missing": missing} if named or missing else None


def aggregate_files(
    patterns: str | Iterable[str],
    *,
    output: str | os.PathLike[str] | None = None,
    merge: bool = True,
    hooks: FindHooks | None = None,
    default_agent: str = "agent",
    count_failure_classes_as_zero: Iterable[str] = (),
    count_missing_rollouts_as_zero: bool = False,
) -> Aggregated:
    """Aggregate the rollouts of shards, or of one run.

    The failures and materialised rows that stand beside them count too. ``output`` is the file of rollouts whose
    aggregate is written, ``out/r.jsonl`` → ``out/r_aggregate_metrics.json``; without it nothing is. With ``merge`` and
    more than one input, the rows of all are written to ``output`` and its sidecars as well: of two rows for one
    rollout, that of the later attempt.

    **Errors**: `UsageError` when no file has such a name, or when the merged rows would take the place of others;
    `RowError` for a line that is no row.
    """
    patterns = [patterns] if isinstance(patterns, str) else list(patterns)
    if not patterns:
        raise UsageError("name the files of rollouts to aggregate, such as results/rollouts.jsonl")
    files = RunFiles.of(output) if output is not None else None
    inputs = rollout_files(patterns, without=files.output if files is not None else None)
    if files is not None:
        prepare_folder(files)  # that it cannot be written is told before a million rows are read
    merged = files if merge and len(inputs) > 1 else None
    if merged is not None:
        check_merged(inputs, merged)
    count_failure_classes_as_zero = list(count_failure_classes_as_zero)
    zeros = _zeros(count_failure_classes_as_zero, count_missing_rollouts_as_zero)
    notes: list[str] = []
    aggregate = aggregate_rows(
        inputs,
        hooks=hooks,
        default_agent=default_agent,
        count_failure_classes_as_zero=count_failure_classes_as_zero,
        count_missing_rollouts_as_zero=count_missing_rollouts_as_zero,
        notes=notes,
    )
    if not aggregate.sources:
        known = f" ({aggregate.coverage.line})" if aggregate.coverage.expected else ""
        raise UsageError(f"{', '.join(map(str, inputs))}: no rollouts to aggregate{known}")
    if merged is not None:
        merge_rows(inputs, merged)
    given = entries_of(aggregate, zeros)
    entries = write_aggregate(files.aggregate, aggregate, zeros) if files is not None else [_bare(one) for one in given]
    return Aggregated(
        entries=entries,
        coverage=aggregate.coverage,
        inputs=tuple(inputs),
        path=files.aggregate if files is not None else None,
        merged=merged.output if merged is not None else None,
        notes=tuple(notes),
    )


def aggregate_rows(
    inputs: Sequence[pathlib.Path],
    *,
    notes: list[str],
    hooks: FindHooks | None = None,
    default_agent: str = "agent",
    count_failure_classes_as_zero: Iterable[str] = (),
    count_missing_rollouts_as_zero: bool = False,
    check: Callable[[], None] = lambda: None,
) -> Aggregate:
    """The aggregate of files of rollouts and what stands beside them; what was left out goes to ``notes``.

    ``check`` is called now and then, and may raise to end the work.
    """
    count_failure_classes_as_zero = list(count_failure_classes_as_zero)
    aggregator = Aggregator(
        hooks=hooks,
        default_agent=default_agent,
        count_failure_classes_as_zero=count_failure_classes_as_zero,
        count_missing_rollouts_as_zero=count_missing_rollouts_as_zero,
    )
    repeated, classes = RepeatedLines(), set[str]()

    def fail(row: dict[str, Any]) -> None:
        aggregator.add_failure(row)
        classes.add(str(row.get(FAILURE_CLASS)))

    def add(row: dict[str, Any]) -> None:
        aggregator.add(row)
        repeated.note(row)

    for paths, take in (
        (sidecars(inputs, "materialized"), aggregator.expect),
        (inputs, add),
        (sidecars(inputs, "failures"), fail),
    ):
        for path in paths:
            for number, row in whole_rows(path, notes):
                if number % _CHECK_EVERY == 1:
                    check()
                try:
                    take(row)
                except RowError as error:
                    raise RowError(str(error), source=str(path), line=number) from None
    notes += told(repeated.find(inputs)) + odd_classes(count_failure_classes_as_zero, classes)
    return aggregator.finish()


@attrs.frozen
class _Groups:
    """The rows of an entry's tasks, made anew each time that they are gone through."""

    source: SourceAggregate = attrs.field(repr=False)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return self.source.groups()


def entries_of(aggregate: Aggregate, zeros: Zeros = None) -> Iterator[dict[str, Any]]:
    """The entries, of which the ``group_level_metrics`` are made as they are gone through."""
    for source in aggregate.sources:
        server = source.source.environment_server
        yield {
            "agent_ref": {"name": source.source.agent},
            **({"_ng_environment_server": server} if server is not None else {}),
            "agent_metrics": source.agent_metrics,
            "key_metrics": source.key_metrics,
            GROUPS: _Groups(source),
            "repeat_level_metrics": source.repeat_level_metrics,
            **({"perf_summary": source.perf_summary} if source.perf_summary is not None else {}),
            "intervals": source.intervals,
            "pass_metrics": source.pass_metrics,
            "warnings": source.warnings,
            **({COUNTED_AS_ZERO: zeros} if zeros is not None else {}),
        }


def _bare(entry: dict[str, Any]) -> dict[str, Any]:
    """The entry without its groups, of which there is one for each task."""
    return {name: value for name, value in entry.items() if name != GROUPS}


def write_aggregate(path: pathlib.Path, aggregate: Aggregate, zeros: Zeros) -> list[dict[str, Any]]:
    """Write the file, the groups one at a time, so that a million tasks are never in memory; returns bare entries."""
    entries = []
    with replacing(path) as file:
        for number, entry in enumerate(entries_of(aggregate, zeros)):
            file.write(b"[\n" if number == 0 else b",\n")
            for chunk in _chunks(entry):
                file.write(chunk)
            entries.append(_bare(entry))
        file.write(b"\n]\n" if entries else b"[]\n")
    return entries


def _chunks(entry: dict[str, Any]) -> Iterator[bytes]:
    yield b"{"
    for number, (name, value) in enumerate(entry.items()):
        yield (b",\n" if number else b"") + dump(name) + b": "
        if name != GROUPS:
            yield dump(value)
            continue
        yield b"["
        for position, group in enumerate(value):
            yield (b",\n" if position else b"\n") + dump(group)
        yield b"]"
    yield b"}"
