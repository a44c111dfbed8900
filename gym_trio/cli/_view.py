"""``gym-trio view FILE``: the rollouts of a run, as a list or one by one."""

from __future__ import annotations

import pathlib
from collections.abc import Iterator, Mapping
from typing import Annotated, Any

import orjson
from cyclopts import Parameter

from ..collection import whole_rows
from ..errors import UsageError
from ..servers import output_text
from ._console import print_json, print_line, tell
from ._preflight import check_at_least_one

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
    check_at_least_one("--limit", limit)
    chosen, more = _chosen(rollouts, task, repeat, limit)
    if as_json:
        print_json(chosen)
        return
    for row in chosen:
        if task is None:
            print_line(summary_line(row))
        else:
            for line in conversation(row):
                print_line(line)
    if more:
        print_line(f"… {more} more (--limit)")


def _chosen(path: pathlib.Path, task: int | None, repeat: int | None, limit: int) -> tuple[list[dict[str, Any]], int]:
    """The first rows of a task and repeat, or of all; and how many there are more."""
    notes: list[str] = []
    chosen: list[dict[str, Any]] = []
    more = 0
    for _, row in whole_rows(path, notes):
        if task in (None, row.get("_ng_task_index")) and repeat in (None, row.get("_ng_rollout_index")):
            if len(chosen) < limit:
                chosen.append(row)
            else:
                more += 1
    for note in notes:
        tell(note)
    if not chosen:
        named = (("task", task), ("repeat", repeat))
        of = " ".join(f"{name} {number}" for name, number in named if number is not None)
        raise UsageError(f"{path}: has no rollout of {of}" if of else f"{path}: has no rows")
    return chosen, more


def summary_line(row: Mapping[str, Any]) -> str:
    """Task, repeat, reward or failure, and the beginning of what the model said."""
    name = f"{row.get('_ng_task_index', '?')}-{row.get('_ng_rollout_index', '?')}"
    if "_ng_failure_class" in row:
        return f"{name:>10}  failed {row['_ng_failure_class']}: {_short(str(row.get('_ng_failure_message')))}"
    reward = row.get("reward")
    shown = f"{reward:.3f}" if isinstance(reward, int | float) else str(reward)
    said = [item for item in _items(row, "response", "output") if isinstance(item, Mapping)]
    return f"{name:>10}  {shown}  {_short(output_text({'output': said}))}"


def conversation(row: Mapping[str, Any]) -> Iterator[str]:
    """One rollout: what went in, what the model and the tools said, the reward."""
    yield f"── task {row.get('_ng_task_index')} repeat {row.get('_ng_rollout_index')}"
    for item in (*_items(row, "responses_create_params", "input"), *_items(row, "response", "output")):
        yield from _item(item)
    if "_ng_failure_class" in row:
        yield f"failed: {row['_ng_failure_class']} ({row.get('_ng_failure_stage')}): {row.get('_ng_failure_message')}"
    else:
        yield f"reward: {row.get('reward')}"


def _items(row: Mapping[str, Any], name: str, key: str) -> list[Any]:
    """The items at ``row[name][key]``. A file may say anything there: what is no list is the only item."""
    holder = row.get(name)
    found = holder.get(key) if isinstance(holder, Mapping) else holder
    if isinstance(found, str):
        return [{"role": "user", "content": found}]
    return found if isinstance(found, list) else [] if found is None else [found]


def _item(item: Any) -> Iterator[str]:
    kind = item.get("type", "message") if isinstance(item, Mapping) else None
    if kind == "message":
        yield f"{item.get('role', 'assistant')}: {_texts(item.get('content'))}"
    elif kind == "function_call":
        yield f"call: {item.get('name')}({item.get('arguments')})"
    elif kind == "function_call_output":
        yield f"output: {item.get('output')}"
    elif kind == "reasoning":
        yield f"reasoning: {_texts(item.get('summary'))}"
    else:
        yield f"{kind or 'no item'}: {orjson.dumps(item).decode()}"


def _texts(content: Any) -> str:
    parts = content if isinstance(content, list) else [content]
    return "".join(str(part.get("text") or "") if isinstance(part, Mapping) else str(part or "") for part in parts)


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= SHOWN_CHARACTERS else line[: SHOWN_CHARACTERS - 1] + "…"
