"""Scheduling by conversation: the calendar that the assistant ends with must hold every request."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import orjson

from ..servers import RequestBody, ResourcesServer, Session
from ._packaged import packaged_rows

__all__ = ["Calendar", "grade", "list_in", "minutes_of"]

# What comes after each part of a list: whatever is between is no bracket, or stands in braces.
_PARTS = ("{", "}", "]")

GENERATED = 20  # rows made from a plan, after those that were written
_OPEN, _CLOSE, _STEP = 9 * 60, 17 * 60, 15
_DURATIONS = (15, 30, 45, 60, 90)
_EVENTS = (
    *("Budget talk", "Call with Ines", "Code review", "Dentist", "Interview", "Lunch with Omar", "Physiotherapy"),
    *("Planning", "Rehearsal", "Site visit", "Stand-up", "Supplier call", "Team photo", "Walk", "Workshop"),
)
_SYSTEM = (
    "You keep the user's calendar for one day, from 9am to 5pm. After each message answer with the whole calendar as a "
    "JSON list of events with event_id (from 0), event_name, start_time (HH:MM, 24 hours) and duration in minutes. No "
    "two events may overlap."
)


class Calendar(ResourcesServer):
    """Keep a calendar through a conversation. Reward 1 when the last answer's calendar is right, else 0.

    The answer is the first text of the last output item; a list of events in it (``event_id``, ``start_time``,
    ``duration`` in minutes) is the calendar. It is right when it has as many events as the row's ``exp_cal_state``, no
    two of them at the same time, and each with the expected duration, within its ``min_time`` and ``max_time`` and its
    ``constraint`` (``before``, ``after``, ``at`` or ``between ... and ...``). With no expected events any answer is
    right. An answer with ``<think>`` in it is wrong, and so is one that is no text.

    Source of the rule: NeMo Gym's ``calendar``.
    """

    description = "Keep a calendar through a conversation"
    domain = "agent"

    @classmethod
    def rows(cls, config: Mapping[str, Any]) -> Iterable[dict[str, Any]]:
        yield from packaged_rows("calendar")
        for number in range(GENERATED):
            yield _row(random.Random(f"calendar:{number}"))

    async def verify(self, session: Session, request: RequestBody) -> dict[str, Any]:
        reason = grade(_last_text(request.response), request.get("exp_cal_state") or {})
        return {"reward": float(reason is None), "grading_reason": reason or "pass"}


def _last_text(response: Mapping[str, Any]) -> str:
    items = response.get("output") or ()
    content = items[-1].get("content") if items else None
    first = content[0] if isinstance(content, list) and content else None
    text = first.get("text") if isinstance(first, Mapping) else content
    return text if isinstance(text, str) else ""


def grade(answer: str, expected: Mapping[str, Mapping[str, Any]]) -> str | None:
    """``None`` for a right answer, else what is wrong with it."""
    if not answer:
        return "no_text"
    if "<think>" in answer:
        return "think_found"
    if not expected:
        return None
    events = _events_in(answer)
    if not events:
        return "no_json_list"
    try:
        return _judge(events, expected)
    except (KeyError, TypeError, ValueError, AttributeError):
        return "error_in_grading"


def list_in(text: str) -> str | None:
    r"""The first list in square brackets that holds an object, or ``None``: what the regular expression
    ``\[A*\{A*\}A*\]`` finds, with ``[^\[\]]|\{[^}]*\}`` for ``A``.

    The expression itself takes a time that doubles with each brace of a text which it does not fit. Here a place that
    has been tried in vain is not tried again, so the time is in proportion to the text's length.
    """
    tried: set[tuple[int, int]] = set()
    for start in (match.start() for match in re.finditer(r"\[", text)):
        waiting = [(0, start + 1)]  # which of the parts comes next, from which place; the last one is tried first
        while waiting:
            state = waiting.pop()
            part, place = state
            if state in tried or place >= len(text):
                continue
            tried.add(state)
            sign = text[place]
            if sign == _PARTS[part]:
                if sign == "]":
                    return text[start : place + 1]
                waiting.append((part + 1, place + 1))
            if sign == "{" and (end := text.find("}", place)) >= 0:
                waiting.append((part, end + 1))
            if sign not in "[]":
                waiting.append((part, place + 1))
    return None


def _events_in(answer: str) -> list[Any] | None:
    found = list_in(answer)
    try:
        return orjson.loads(found) if found else None
    except orjson.JSONDecodeError:
        return None


def _judge(events: Sequence[Mapping[str, Any]], expected: Mapping[str, Mapping[str, Any]]) -> str | None:
    by_id = {str(event["event_id"]): event for event in events}
    if len(by_id) != len(expected):
        return "different_number_of_events"
    spans = sorted((_span(event), position) for position, event in enumerate(events))
    if any(_overlap(spans[a][0], spans[b][0]) and events[spans[a][1]] != events[spans[b][1]] for a, b in _pairs(spans)):
        return "conflicting_events"
    if not all(_fits(by_id[name], wish) for name, wish in expected.items()):
        return "constraint_violated"
    return None


def _pairs(items: Sequence[Any]) -> Iterable[tuple[int, int]]:
    return ((a, b) for a in range(len(items)) for b in range(a + 1, len(items)))


def _span(event: Mapping[str, Any]) -> tuple[int, int]:
    start = minutes_of(event["start_time"])
    return start, start + event["duration"]


def _overlap(first: tuple[int, int], second: tuple[int, int]) -> bool:
    return first[1] > second[0] and first[0] < second[1]


def _fits(event: Mapping[str, Any], wish: Mapping[str, Any]) -> bool:
    start, end = _span(event)
    if event["duration"] != wish["duration"]:
        return False
    if start < minutes_of(wish["min_time"]) or end > minutes_of(wish["max_time"]):
        return False
    kind, _, times = (wish["constraint"] or "").partition(" ")
    if kind == "before":
        return end <= minutes_of(times)
    if kind == "after":
        return start >= minutes_of(times)
    if kind == "at":
        return start == minutes_of(times)
    if kind == "between":
        first, second = times.split(" and ")
        return start >= minutes_of(first) and end <= minutes_of(second)
    return True


def minutes_of(time: str) -> int:
    """A time of day in minutes: ``10am``, ``2:15pm`` or ``14:15``. **Errors**: `ValueError` for what is none."""
    time = time.strip()
    half = next((half for half in ("am", "pm") if half in time), None)
    if half is None:
        hours, minutes = map(int, time.split(":"))
        return hours * 60 + minutes
    clock, _, minute = time.replace(half, "").partition(":")
    hour = int(clock)
    return (0 if hour == 12 else hour * 60) + int(minute or 0) + (720 if half == "pm" else 0)


def _row(rng: random.Random) -> dict[str, Any]:
    """A day that can be kept: what is wished for each event holds in one plan."""
    count = rng.randint(2, 5)
    durations = [rng.choice(_DURATIONS) for _ in range(count)]
    spare = (_CLOSE - _OPEN - sum(durations)) // _STEP
    gaps = sorted(rng.randint(0, spare) * _STEP for _ in range(count))
    starts = [_OPEN + gap + sum(durations[:place]) for place, gap in enumerate(gaps)]
    places = rng.sample(range(count), count)  # in the order in which they are asked for
    names = rng.sample(_EVENTS, count)
    events = [
        {"event_id": number, "event_name": name, "start_time": _digital(starts[place]), "duration": durations[place]}
        for number, (name, place) in enumerate(zip(names, places, strict=True))
    ]
    wishes = [_wish(rng, starts[place], starts[place] + durations[place]) for place in places]
    first = rng.randint(1, count)  # the rest comes in a second message
    messages = [{"role": "system", "content": _SYSTEM}, _asking(events[:first], wishes[:first])]
    if first < count:
        kept = {"role": "assistant", "content": json.dumps(events[:first])}
        messages += [kept, _asking(events[first:], wishes[first:])]
    expected = {
        str(event["event_id"]): {
            "event_id": event["event_id"],
            "duration": event["duration"],
            "constraint": wish,
            "min_time": _digital(_OPEN),
            "max_time": _digital(_CLOSE),
        }
        for event, wish in zip(events, wishes, strict=True)
    }
    return {"responses_create_params": {"input": messages}, "exp_cal_state": expected}


def _asking(events: Iterable[Mapping[str, Any]], wishes: Iterable[str | None]) -> dict[str, str]:
    wanted = [
        f"- {event['event_name']}, {event['duration']} minutes, {wish or 'at any time'}"
        for event, wish in zip(events, wishes, strict=True)
    ]
    return {"role": "user", "content": "\n".join(["Please put this into my calendar:", *wanted])}


def _wish(rng: random.Random, start: int, end: int) -> str | None:
    earlier = max(_OPEN, start - rng.randint(0, 4) * _STEP)
    later = min(_CLOSE, end + rng.randint(0, 4) * _STEP)
    before, after = f"before {_spoken(later)}", f"after {_spoken(earlier)}"
    return rng.choice((f"at {_spoken(start)}", before, after, f"between {_spoken(earlier)} and {_spoken(later)}", None))


def _digital(minutes: int) -> str:
    return f"{minutes // 60:02}:{minutes % 60:02}"


def _spoken(minutes: int) -> str:
    hour, minute = divmod(minutes, 60)
    return f"{(hour - 1) % 12 + 1}{f':{minute:02}' if minute else ''}{'am' if hour < 12 else 'pm'}"
