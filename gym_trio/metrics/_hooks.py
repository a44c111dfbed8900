"""Running an environment author's own metrics, guarded: one that raises costs its own metrics and is reported."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import attrs

from ._rows import TASK_INDEX, TaskIndex

logger = logging.getLogger(__name__)

Tasks = Sequence[Sequence[dict[str, Any]]]
T = TypeVar("T")
Warning_ = dict[str, Any]


@attrs.frozen
class Hooks:
    """An author's functions. Both get copies and may keep or change them.

    ``compute_metrics(tasks)`` gets the measured rows of each task without their conversations and returns metrics to
    add; an entry ``per_task_metrics``, a list of objects with ``_ng_task_index``, goes to the tasks' own rows.
    ``get_key_metrics(agent_metrics)`` returns the headline metrics.
    """

    compute_metrics: Callable[[Tasks], Mapping[str, Any]] | None = None
    get_key_metrics: Callable[[dict[str, Any]], Mapping[str, Any]] | None = None

    @classmethod
    def of(cls, author: Any) -> Hooks:
        """The hooks that an object has as methods."""
        found = {name: getattr(author, name, None) for name in ("compute_metrics", "get_key_metrics")}
        return cls(**{name: hook for name, hook in found.items() if callable(hook)})


@attrs.frozen
class Computed:
    """What ``compute_metrics`` gave: metrics of the agent, and of single tasks."""

    agent: dict[str, Any] = attrs.field(factory=dict)
    tasks: dict[TaskIndex, dict[str, Any]] = attrs.field(factory=dict)


def run_compute_metrics(hooks: Hooks, tasks: Tasks, warnings: list[Warning_]) -> Computed:
    """Run the hook if there is one; a failure adds a warning and gives nothing."""
    if hooks.compute_metrics is None:
        return Computed()
    compute = hooks.compute_metrics
    return _guarded("compute_metrics", lambda: _computed(compute(tasks)), Computed(), warnings)


def _computed(result: Any) -> Computed:
    metrics = _metrics(result)
    rows = metrics.pop("per_task_metrics", None) or []
    per_task = {row[TASK_INDEX]: {name: row[name] for name in row if name != TASK_INDEX} for row in rows}
    return Computed(metrics, per_task)


def run_get_key_metrics(
    hooks: Hooks, agent_metrics: dict[str, Any], default: dict[str, Any], warnings: list[Warning_]
) -> dict[str, Any]:
    """Run the hook if there is one; without one, or when it fails, ``default``."""
    if hooks.get_key_metrics is None:
        return default
    chosen = hooks.get_key_metrics
    return _guarded("get_key_metrics", lambda: _metrics(chosen(dict(agent_metrics))), default, warnings)


def _metrics(result: Any) -> dict[str, Any]:
    if result is None:
        return {}
    if not isinstance(result, Mapping) or not all(isinstance(name, str) for name in result):
        raise TypeError(f"a hook returns a dict of metrics by name, not {type(result).__name__}")
    return dict(result)


def _guarded(name: str, call: Callable[[], T], instead: T, warnings: list[Warning_]) -> T:
    try:
        return call()
    except (Exception, SystemExit) as exc:
        logger.warning("the hook %s raised", name, exc_info=True)
        what = f"{type(exc).__name__}: {exc}"[:500]
        warnings.append(
            {"kind": "hook_failed", "hook": name, "error": what, "message": f"{name} raised and is left out: {what}"}
        )
        return instead
