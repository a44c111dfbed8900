"""What OpenEnv's servers are told and what they answer: the one place that knows the keys of its protocol."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import attrs

from ..errors import FailureKind, RolloutFailure, Stage

__all__ = ["CLOSE", "LIST_TOOLS", "Refusal", "Seen", "call_tool", "is_for_tools", "read_answer", "reset", "step"]

CLOSE = '{"type":"close"}'
LIST_TOOLS: Mapping[str, Any] = {"type": "list_tools"}

# Its codes of an error, as a failure of the rollout. The rest say that the environment itself failed.
_KINDS: Mapping[str, FailureKind] = {
    "CAPACITY_REACHED": FailureKind.PROVIDER_QUOTA_EXHAUSTED,
    "FACTORY_ERROR": FailureKind.PROVIDER_UNAVAILABLE,
    "SESSION_ERROR": FailureKind.SESSION_LOST,
}


@attrs.frozen
class Seen:
    """What a reset or a step brought."""

    observation: Mapping[str, Any]
    reward: Any  # None: there is none for it
    done: bool


@attrs.frozen
class Refusal:
    """An error in place of an observation. ``details`` are the fields that do not fit, in words."""

    code: str
    message: str
    details: str = ""
    max_sessions: int | None = None

    @property
    def is_lack_of_room(self) -> bool:
        return self.code == "CAPACITY_REACHED"

    def __str__(self) -> str:
        return f"{self.details or self.message} ({self.code})"

    def failure(self, server: str, stage: Stage) -> RolloutFailure:
        kind = _KINDS.get(self.code)
        return RolloutFailure(
            kind or FailureKind.AGENT_RUN_ERROR,
            f"{server}: the environment answered: {self}",
            None,
            stage,
            kind is None,
        )


def reset(options: Mapping[str, Any]) -> str:
    return json.dumps({"type": "reset", "data": dict(options)})


def step(action: Mapping[str, Any]) -> str:
    return json.dumps({"type": "step", "data": dict(action)})


def call_tool(name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "call_tool", "tool_name": name, "arguments": dict(arguments)}


def is_for_tools(schema: Mapping[str, Any]) -> bool:
    """Whether actions of this schema are tool calls: those of an environment that has tools and nothing else."""
    properties = schema.get("properties") or {}
    if schema.get("title") == "Action" and not properties.keys() - {"metadata"}:
        return True  # the base class, which stands for any of them
    kind = properties.get("type")
    return isinstance(kind, Mapping) and kind.get("const") in ("call_tool", "list_tools")


def read_answer(text: str, server: str) -> Seen | Refusal:
    """The answer in ``text``. **Errors**: `RolloutFailure` for what is none."""
    try:
        answer = json.loads(text)  # which reads NaN too, where another server writes it
        kind, data = answer["type"], answer["data"]
        if kind == "error":
            return _refusal(data)
        if kind == "observation" and isinstance(data["observation"], Mapping):
            return Seen(data["observation"], data.get("reward"), data.get("done") is True)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        pass
    raise RolloutFailure(
        FailureKind.AGENT_RUN_ERROR, f"{server}: the server's answer is not OpenEnv's: {text[:200]!r}", terminal=True
    )


def _refusal(data: Mapping[str, Any]) -> Refusal:
    wrong = data.get("errors")
    details = "; ".join(_field_error(one) for one in wrong) if isinstance(wrong, list) else ""
    most = data.get("max_sessions")
    return Refusal(
        str(data.get("code") or "no code"),
        str(data.get("message") or "no message"),
        details[:1000],
        most if isinstance(most, int) and most > 0 else None,
    )


def _field_error(one: Mapping[str, Any]) -> str:
    where = ".".join(str(part) for part in one.get("loc") or ())
    return f"{where}: {one.get('msg')}" if where else str(one.get("msg"))
