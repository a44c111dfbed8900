"""The next step of a conversation with tools: the right call with the right arguments, or a message."""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import attrs
import orjson

from ..errors import RequestRefused
from ..servers import RequestBody, ResourcesServer, Session
from ._packaged import packaged_rows

__all__ = ["ComparatorSettings", "RewardMode", "SingleStepToolUse", "SingleStepToolUseSettings", "compare_arguments"]

Call = Mapping[str, Any]


class RewardMode(enum.StrEnum):
    """What a response earns that was to make several calls and made an admissible number of them."""

    BINARY_STRICT = "binary_strict"  # 1 when all required calls match, else 0
    FRACTIONAL = "fractional"  # the share of the required calls that match
    F1 = "f1"  # twice the matches over expected and made calls


@attrs.frozen(kw_only=True)
class ComparatorSettings:
    """How calls are compared.

    Texts of at least two words match when the words in common are at least this share of the words of both.
    ``parallel_tool_call_rewarding`` makes the number of calls count; ``allow_subset`` and ``allow_superset`` then admit
    fewer or more calls than expected, and the mode says what they earn.
    """

    word_count_similarity_threshold: float = 0.1
    floating_point_comparison_threshold: float = 1e-6
    parallel_tool_call_rewarding: bool = False
    allow_subset: bool = False
    allow_superset: bool = False
    parallel_tool_call_reward_mode: RewardMode = attrs.field(default=RewardMode.BINARY_STRICT, converter=RewardMode)


@attrs.frozen(kw_only=True)
class SingleStepToolUseSettings:
    """The key of the block besides the common ones."""

    tool_call_comparator_config: ComparatorSettings = attrs.field(factory=ComparatorSettings)


class SingleStepToolUse(ResourcesServer):
    """One step of a conversation. The reward is for the row's ``expected_action``.

    Where a message is expected, any message earns 1 and a tool call 0. Where calls are expected, the made ones are
    matched with them in any order, as many as possible: same name, and arguments of the same shape and types, equal
    numbers (nearly, for fractions), texts of one word equal, longer ones with enough words in common. A response that
    both says something and calls tools is judged by the calls.

    Source of the rule: NeMo Gym's ``single_step_tool_use_with_argument_comparison``.
    """

    description = "The next step of a conversation with tools: the right call, or a message"
    domain = "agent"
    settings_type = SingleStepToolUseSettings

    @classmethod
    def rows(cls, config: Mapping[str, Any]) -> Iterable[dict[str, Any]]:
        return packaged_rows("single_step_tool_use_with_argument_comparison")

    async def verify(self, session: Session, request: RequestBody) -> dict[str, Any]:
        made, said = _action(request.response)
        expected = _expected_calls(request.get("expected_action"))
        if not made and not said:
            return {"reward": 0.0, "category": "nothing was said or called"}
        if expected is None:
            return {
                "reward": float(not made),
                "category": "a message, as expected" if not made else "a call, no message",
            }
        if not made:
            return {"reward": 0.0, "category": "a message, no call"}
        return _judge(expected, made, self.settings.tool_call_comparator_config)


def _action(response: Mapping[str, Any]) -> tuple[list[Call], bool]:
    """The calls of a response, and whether a message of it has a text."""
    items = response.get("output") or ()
    calls = [item for item in items if item.get("type") == "function_call"]
    messages = [item for item in items if item.get("type") == "message" and item.get("role") == "assistant"]
    return calls, any(_has_text(item.get("content")) for item in messages)


def _has_text(content: Any) -> bool:
    parts = content if isinstance(content, list) else ()
    return isinstance(content, str) or any(
        isinstance(part, Mapping) and part.get("type") == "output_text" for part in parts
    )


def _expected_calls(action: Any) -> list[Call] | None:
    """The calls of an expected action; ``None`` for a message. **Errors**: `RequestRefused` for what is no action."""
    kind = action.get("type") if isinstance(action, Mapping) else None
    if kind == "message":
        return None
    calls = [action] if kind == "function_call" else action.get("calls") if kind == "function_call_batch" else None
    if not calls:
        raise RequestRefused(
            422, "expected_action must be a message, a function_call or a function_call_batch with calls"
        )
    try:
        return [{"name": call["name"], "arguments": orjson.loads(call["arguments"])} for call in calls]
    except (orjson.JSONDecodeError, KeyError, TypeError):
        raise RequestRefused(422, "each expected call needs a name and arguments, a JSON object in a string") from None


def _judge(expected: Sequence[Call], made: Sequence[Call], settings: ComparatorSettings) -> dict[str, Any]:
    reasons = [[_mismatch(wanted, call, settings) for call in made] for wanted in expected]
    matches = _most_matches([[place for place, why in enumerate(row) if why is None] for row in reasons])
    reward = _reward(matches, len(expected), len(made), settings)
    if reward == 1.0:
        return {"reward": 1.0, "category": "the expected calls"}
    if not _admissible(len(expected), len(made), settings) or matches in (len(expected), len(made)):
        return {"reward": reward, "category": "another number of calls"}
    row = next(row for row in reasons if None not in row) if any(None not in row for row in reasons) else reasons[0]
    near = next((why for why in row if why not in (None, "another tool")), "another tool")
    return {"reward": reward, "category": near}


def _reward(matches: int, expected: int, made: int, settings: ComparatorSettings) -> float:
    # One call for one is a plain comparison, whatever is said about several.
    if not settings.parallel_tool_call_rewarding or expected == made == 1:
        return float(matches == expected)
    if not _admissible(expected, made, settings):
        return 0.0
    if settings.parallel_tool_call_reward_mode is RewardMode.F1:
        return 2 * matches / (expected + made)
    required = min(expected, made) if settings.allow_subset else expected
    if settings.parallel_tool_call_reward_mode is RewardMode.FRACTIONAL:
        return matches / required
    return float(matches == required)


def _admissible(expected: int, made: int, settings: ComparatorSettings) -> bool:
    if not settings.parallel_tool_call_rewarding or made == expected:
        return True
    return settings.allow_subset if made < expected else settings.allow_superset


def _most_matches(candidates: Sequence[Sequence[int]]) -> int:
    """How many expected calls can each have a made call of its own: the size of a maximum bipartite matching."""
    taken: dict[int, int] = {}

    def place(wanted: int, tried: set[int]) -> bool:
        for made in candidates[wanted]:
            if made not in tried:
                tried.add(made)
                if made not in taken or place(taken[made], tried):
                    taken[made] = wanted
                    return True
        return False

    return sum(place(wanted, set()) for wanted in range(len(candidates)))


def _mismatch(expected: Call, made: Call, settings: ComparatorSettings) -> str | None:
    """Why ``made`` is not the expected call; ``None`` when it is."""
    if made.get("name") != expected["name"]:
        return "another tool"
    try:
        arguments = orjson.loads(made.get("arguments") or "")
    except (orjson.JSONDecodeError, TypeError):
        return "arguments that are no JSON"
    return compare_arguments(expected["arguments"], arguments, settings)


def compare_arguments(expected: Any, value: Any, settings: ComparatorSettings) -> str | None:
    """Why ``value`` does not agree with ``expected``; ``None`` when it does."""
    if not isinstance(value, type(expected)):
        return "a value of another type"
    if isinstance(expected, dict):
        if expected.keys() != value.keys():
            return "other keys"
        pairs: Iterable[tuple[Any, Any]] = ((expected[key], value[key]) for key in expected)
    elif isinstance(expected, list):
        if len(expected) != len(value):
            return "a list of another length"
        pairs = zip(expected, value, strict=True)
    else:
        return None if _same(expected, value, settings) else "another value"
    return next((why for pair in pairs if (why := compare_arguments(*pair, settings)) is not None), None)


def _same(expected: Any, value: Any, settings: ComparatorSettings) -> bool:
    if isinstance(expected, float):
        return bool(abs(value - expected) < settings.floating_point_comparison_threshold)
    if not isinstance(expected, str):
        return bool(expected == value)
    wanted, given = Counter(expected.lower().split()), Counter(value.lower().split())
    if wanted.total() < 2 or given.total() < 2:
        return bool(expected == value)
    return (wanted & given).total() / (wanted.total() + given.total()) >= settings.word_count_similarity_threshold
