"""What the metrics keep of a row: its identity and its numbers, never its payload."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from ..errors import RowError
from ._numbers import as_number

TASK_INDEX = "_ng_task_index"
ROLLOUT_INDEX = "_ng_rollout_index"
ATTEMPT_INDEX = "_ng_attempt_index"
ENVIRONMENT_SERVER = "_ng_environment_server"
AGENT_REF = "agent_ref"
FAILURE_CLASS = "_ng_failure_class"
MASK = "mask_sample"
COUNTED_AS_ZERO = "counted_as_zero"  # of an entry of aggregate metrics: what was, if anything was

TaskIndex = int | str

# Not measurements: a flag, and what `ng_perf` and the failure records say in places of their own.
_NOT_COLUMNS = frozenset({MASK})
_PAYLOAD = frozenset({"responses_create_params", "ng_model_call_capture", "ng_trajectory", "ng_agent_observations"})


@attrs.frozen
class Source:
    """What a row was run on: an agent, and the environment server in front of it where the row names one."""

    agent: str
    environment_server: str | None = None


@attrs.frozen
class RowSummary:
    """The compact form of one output row; ``numbers`` and ``perf`` hold finite numbers only.

    ``task`` and ``rollout`` are None where the row does not say.
    """

    task: TaskIndex | None
    rollout: int | None
    attempt: int
    source: Source
    masked: bool
    numbers: dict[str, float]
    perf: dict[str, float] | None


def task_order(task: TaskIndex) -> tuple[bool, int, str]:
    """The sort key of task indices: numbers first, in order, then names."""
    return (True, 0, task) if isinstance(task, str) else (False, task, "")


def source_of(row: Mapping[str, Any], default_agent: str = "agent") -> Source:
    """The agent that a row names, else ``default_agent``, and its environment server."""
    ref = row.get(AGENT_REF)
    name = ref.get("name") if isinstance(ref, Mapping) else ref
    server = row.get(ENVIRONMENT_SERVER)
    return Source(
        name if isinstance(name, str) and name else default_agent, server if isinstance(server, str) else None
    )


def task_of(row: Mapping[str, Any]) -> TaskIndex | None:
    """The row's task index. **Errors**: `RowError` when it is neither a whole number nor a name."""
    value = row.get(TASK_INDEX)
    return value if isinstance(value, str) else _index(value, TASK_INDEX)


def rollout_of(row: Mapping[str, Any]) -> int | None:
    """The row's repeat. **Errors**: `RowError` when it is not a whole number."""
    return _index(row.get(ROLLOUT_INDEX), ROLLOUT_INDEX)


def attempt_of(row: Mapping[str, Any]) -> int:
    """The row's attempt, 0 where it does not say."""
    return _index(row.get(ATTEMPT_INDEX), ATTEMPT_INDEX) or 0


def _index(value: Any, name: str) -> int | None:
    if value is None:
        return None
    number = as_number(value)
    if number is None or isinstance(value, bool) or number != int(number):
        raise RowError(f"{name} must be a whole number, not {value!r}")
    return int(value)


def columns_of(row: Mapping[str, Any]) -> dict[str, float]:
    """Every number at the top of ``row`` and in ``response.usage``; the usage stands where both have a name.

    Beside these, which are NeMo Gym's, each named reward as ``reward_components/NAME``.
    """
    numbers = {name: value for name, value in row.items() if name[:1] != "_" and name not in _NOT_COLUMNS}
    response, components = row.get("response"), row.get("reward_components")
    usage = response.get("usage") if isinstance(response, Mapping) else None
    if isinstance(components, Mapping):
        numbers |= {f"reward_components/{name}": value for name, value in components.items()}
    return finite(numbers) | (finite(usage) if isinstance(usage, Mapping) else {})


def finite(values: Mapping[str, Any]) -> dict[str, float]:
    """The entries that are numbers (`as_number`); bools become ints and ints stay ints."""
    return {
        name: int(value) if isinstance(value, bool) else value
        for name, value in values.items()
        if as_number(value) is not None
    }


def summarize(row: Mapping[str, Any], *, default_agent: str = "agent") -> RowSummary:
    """The compact form of an output row.

    **Errors**: `RowError` when the row is not a JSON object or an index in it is not one.
    """
    if not isinstance(row, Mapping):
        raise RowError(f"an output row must be an object, not {type(row).__name__}")
    perf = row.get("ng_perf")
    return RowSummary(
        task=task_of(row),
        rollout=rollout_of(row),
        attempt=attempt_of(row),
        source=source_of(row, default_agent),
        masked=bool(row.get(MASK)),
        numbers=columns_of(row),
        perf=finite(perf) if isinstance(perf, Mapping) else None,
    )


def strip_payload(row: Mapping[str, Any]) -> dict[str, Any]:
    """A copy for authors' hooks: without the conversation, with ``response.usage`` kept."""
    kept = {name: value for name, value in row.items() if name not in _PAYLOAD}
    response = kept.pop("response", None)
    usage = response.get("usage") if isinstance(response, Mapping) else None
    if usage is not None:
        kept["response"] = {"usage": usage}
    return kept
