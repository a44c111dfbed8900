"""``gym-trio view FILE``: the rollouts of a run, as a list or one by one."""

from __future__ import annotations

import pathlib
from collections.abc import Iterator, Mapping
from typing import Annotated, Any

import orjson
from cyclopts import Parameter

from ..collection import read_jsonl
from ..errors import UsageError
from ..servers import output_text
from ._console import print_json, print_line

__all__ = ["view"]

SHOWN_CHARACTERS = 72


def view(
    rollouts: pathlib.Path,
    *,
    task: int | None = None,
    repeat: int | None = None,
    limit: int = 50,
    as_json: Annotated[bool, Parameter(name="--json", negative=())] = False,
) -> None:
    """Look at the rollouts of a run: a line each, or one task's conversation.

    Parameters
    ----------
    rollouts
        A rollout file, or its failures.
    task
        Show the rollouts of this task whole.
    repeat
        Of these, this repeat only.
    limit
        How many lines at most.
    as_json
        Print the chosen rows as JSON.
    """
    if not rollouts.is_file():
        raise UsageError(f"{rollouts}: there is no such file")
    chosen = [
        row
        for _, row in read_jsonl(rollouts)
        if (task is None or row.get("_ng_task_index") == task)
        and (repeat is None or row.get("_ng_rollout_index") == repeat)
    ]
    if not chosen:
        raise UsageError(
            f"{rollouts}: has no rollout of task {task}" + (f" repeat {repeat}" if repeat is not None else "")
        )
    if as_json:
        print_json(chosen[:limit])
        return
    for row in chosen[:limit]:
        if task is None:
            print_line(summary_line(row))
        else:
            for line in conversation(row):
                print_line(line)
    if len(chosen) > limit:
        print_line(f"… {len(chosen) - limit} more (--limit)")


def summary_line(row: Mapping[str, Any]) -> str:
    """Task, repeat, reward or failure, and the beginning of what the model said."""
    name = f"{row.get('_ng_task_index', '?')}-{row.get('_ng_rollout_index', '?')}"
    if "_ng_failure_class" in row:
        return f"{name:>10}  failed {row['_ng_failure_class']}: {_short(str(row.get('_ng_failure_message')))}"
    reward = row.get("reward")
    shown = f"{reward:.3f}" if isinstance(reward, int | float) else str(reward)
    return f"{name:>10}  {shown}  {_short(output_text(row.get('response') or {}))}"


def conversation(row: Mapping[str, Any]) -> Iterator[str]:
    """One rollout: what went in, what the model and the tools said, the reward."""
    yield f"── task {row.get('_ng_task_index')} repeat {row.get('_ng_rollout_index')}"
    given = (row.get("responses_create_params") or {}).get("input") or []
    for item in [{"role": "user", "content": given}] if isinstance(given, str) else given:
        yield from _item(item)
    for item in (row.get("response") or {}).get("output") or ():
        yield from _item(item)
    if "_ng_failure_class" in row:
        yield f"failed: {row['_ng_failure_class']} ({row.get('_ng_failure_stage')}): {row.get('_ng_failure_message')}"
    else:
        yield f"reward: {row.get('reward')}"


def _item(item: Mapping[str, Any]) -> Iterator[str]:
    kind = item.get("type", "message")
    if kind == "message":
        content = item.get("content")
        text = content if isinstance(content, str) else "".join(part.get("text") or "" for part in content or ())
        yield f"{item.get('role', 'assistant')}: {text}"
    elif kind == "function_call":
        yield f"call: {item.get('name')}({item.get('arguments')})"
    elif kind == "function_call_output":
        yield f"output: {item.get('output')}"
    elif kind == "reasoning":
        yield "reasoning: " + " ".join(part.get("text") or "" for part in item.get("summary") or ())
    else:
        yield f"{kind}: {orjson.dumps(item).decode()}"


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= SHOWN_CHARACTERS else line[: SHOWN_CHARACTERS - 1] + "…"
