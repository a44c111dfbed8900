"""The events of a Responses stream: those of a finished answer, and those of one that is being built."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any

from ._chat_answers import echo_request
from ._parts import JSON, make_id, pick

__all__ = ["FINAL_EVENTS", "ResponseBuilder", "events_of_response"]

FINAL_EVENTS = frozenset({"response.completed", "response.incomplete", "response.failed"})


def events_of_response(response: Mapping[str, Any]) -> Iterator[JSON]:
    """The events that a stream of ``response`` consists of."""
    opened = {**response, "status": "in_progress", "output": [], "usage": None}
    yield {"type": "response.created", "response": opened}
    yield {"type": "response.in_progress", "response": opened}
    for index, item in enumerate(response.get("output") or ()):
        yield from _item_events(index, item)
    yield _final_event(response)


def _final_event(response: Mapping[str, Any]) -> JSON:
    status = response.get("status") or "completed"
    kind = f"response.{status}"
    return {"type": kind if kind in FINAL_EVENTS else "response.completed", "response": response}


def _item_events(index: int, item: JSON) -> Iterator[JSON]:
    identifier = item.get("id") or make_id("item")
    where = {"output_index": index, "item_id": identifier}
    kind = item.get("type", "message")
    yield {"type": "response.output_item.added", "output_index": index, "item": _empty_item(item, identifier)}
    if kind == "message":
        for position, part in enumerate(item.get("content") or ()):
            yield from _part_events({**where, "content_index": position}, part)
    elif kind == "reasoning":
        for position, part in enumerate(item.get("content") or ()):
            yield from _text_events("reasoning_text", {**where, "content_index": position}, part.get("text") or "")
        for position, part in enumerate(item.get("summary") or ()):
            at = {**where, "summary_index": position}
            yield from _text_events("reasoning_summary_text", at, part.get("text") or "")
    elif kind in _ARGUMENTS:
        event, key = _ARGUMENTS[kind]
        text = item.get(key) or ""
        yield {"type": f"response.{event}.delta", **where, "delta": text}
        yield {"type": f"response.{event}.done", **where, "name": item.get("name"), key: text}
    yield {"type": "response.output_item.done", "output_index": index, "item": {**item, "id": identifier}}


_ARGUMENTS = {
    "function_call": ("function_call_arguments", "arguments"),
    "custom_tool_call": ("custom_tool_call_input", "input"),
}


def _empty_item(item: JSON, identifier: str) -> JSON:
    emptied = {**item, "id": identifier, "status": "in_progress"}
    for name, empty in (("content", []), ("summary", []), ("arguments", ""), ("input", "")):
        if name in emptied:
            emptied[name] = empty
    return emptied


def _part_events(where: JSON, part: JSON) -> Iterator[JSON]:
    refusal = part.get("type") == "refusal"
    key = "refusal" if refusal else "text"
    yield {"type": "response.content_part.added", **where, "part": {**part, key: ""}}
    yield from _text_events(
        "refusal" if refusal else "output_text", where, part.get(key) or "", part.get("logprobs") or []
    )
    yield {"type": "response.content_part.done", **where, "part": part}


def _text_events(name: str, where: JSON, text: str, logprobs: list[Any] | None = None) -> Iterator[JSON]:
    extra: JSON = {"logprobs": logprobs or []} if name == "output_text" else {}
    yield {"type": f"response.{name}.delta", **where, "delta": text, **extra}
    yield {"type": f"response.{name}.done", **where, "refusal" if name == "refusal" else "text": text, **extra}


class ResponseBuilder:
    """Builds a Responses object piece by piece; every step returns the events that it makes.

    Text and reasoning end when something else begins. Tool calls stay open until the answer ends: their arguments may
    come in any order.
    """

    def __init__(self, request: Mapping[str, Any]) -> None:
        self.response: JSON = {
            "id": make_id("resp"),
            "object": "response",
            "created_at": time.time(),
            "status": "in_progress",
            "error": None,
            "incomplete_details": None,
            "model": request.get("model") or "",
            "output": [],
            "usage": None,
            **echo_request(request),
        }
        self._begun = False
        self._open: list[JSON] = []  # the items without their `done`, in order

    def begin(self, **known: Any) -> list[JSON]:
        """The answer has begun; ``known`` are keys of the object that the back end gave (id, model, created_at)."""
        if self._begun:
            return []
        self._begun = True
        self.response.update({name: value for name, value in known.items() if value})
        opened = dict(self.response, output=[])
        return [{"type": f"response.{name}", "response": opened} for name in ("created", "in_progress")]

    def text(self, delta: str, logprobs: list[Any] | None = None) -> list[JSON]:
        return self._grow("output_text", "text", delta, logprobs)

    def refusal(self, delta: str) -> list[JSON]:
        return self._grow("refusal", "refusal", delta, None)

    def reasoning(self, delta: str) -> list[JSON]:
        events: list[JSON] = []
        item = self._open[-1] if self._open else None
        if item is None or item["type"] != "reasoning":
            item = {"id": make_id("rs"), "type": "reasoning", "summary": [], "content": []}
            events = [*self._close_all(), *self._add(item)]
            item["content"].append({"type": "reasoning_text", "text": ""})
        item["content"][0]["text"] += delta
        return [
            *events,
            {"type": "response.reasoning_text.delta", **self._where(item), "content_index": 0, "delta": delta},
        ]

    def call(self, call_id: str | None, name: str, *, custom: bool = False) -> tuple[JSON, list[JSON]]:
        """A tool call begins. Returns its item, to be handed to `arguments`."""
        item = {
            "id": make_id("fc"),
            "type": "custom_tool_call" if custom else "function_call",
            "status": "in_progress",
            "call_id": call_id or make_id("call"),
            "name": name,
            "input" if custom else "arguments": "",
        }
        closed = [] if self._open and self._open[-1]["type"] in _ARGUMENTS else self._close_all()
        return item, [*closed, *self._add(item)]

    def arguments(self, item: JSON, delta: str) -> list[JSON]:
        event, key = _ARGUMENTS[item["type"]]
        item[key] += delta
        return [{"type": f"response.{event}.delta", **self._where(item), "delta": delta}]

    def end(
        self, *, incomplete: str | None = None, usage: JSON | None = None, tokens: JSON | None = None
    ) -> list[JSON]:
        """The answer is whole. ``tokens`` go onto its last item."""
        events = self.begin()
        if not self.response["output"]:
            events += self.text("")
        if tokens:
            self.response["output"][-1].update(tokens)
        self.response["status"] = "incomplete" if incomplete else "completed"
        self.response["incomplete_details"] = {"reason": incomplete} if incomplete else None
        self.response["usage"] = usage
        return [*events, *self._close_all(), _final_event(self.response)]

    def _grow(self, kind: str, key: str, delta: str, logprobs: list[Any] | None) -> list[JSON]:
        events: list[JSON] = []
        item = self._open[-1] if self._open else None
        if item is None or item["type"] != "message":
            item = {
                "id": make_id("msg"),
                "type": "message",
                "role": "assistant",
                "status": "in_progress",
                "content": [],
            }
            events = [*self._close_all(), *self._add(item)]
        parts = item["content"]
        if not parts or parts[-1]["type"] != kind:
            if parts:
                events += self._close_part(item)
            parts.append({"type": kind, key: "", **({"annotations": [], "logprobs": []} if key == "text" else {})})
            at = {**self._where(item), "content_index": len(parts) - 1}
            events.append({"type": "response.content_part.added", **at, "part": dict(parts[-1])})
        part = parts[-1]
        part[key] += delta
        extra: JSON = {}
        if key == "text":
            part["logprobs"] += logprobs or ()
            extra["logprobs"] = logprobs or []
        at = {**self._where(item), "content_index": len(parts) - 1}
        return [*events, {"type": f"response.{kind}.delta", **at, "delta": delta, **extra}]

    def _add(self, item: JSON) -> list[JSON]:
        self.response["output"].append(item)
        self._open.append(item)
        index = len(self.response["output"]) - 1
        added = {name: list(value) if isinstance(value, list) else value for name, value in item.items()}
        return [*self.begin(), {"type": "response.output_item.added", "output_index": index, "item": added}]

    def _where(self, item: JSON) -> JSON:
        index = next(i for i, found in enumerate(self.response["output"]) if found is item)
        return {"output_index": index, "item_id": item["id"]}

    def _close_part(self, item: JSON) -> list[JSON]:
        part = item["content"][-1]
        name = part["type"]
        key = "refusal" if name == "refusal" else "text"
        at = {**self._where(item), "content_index": len(item["content"]) - 1}
        done = {"type": f"response.{name}.done", **at, key: part[key], **pick(part, "logprobs")}
        if name == "reasoning_text":
            return [done]
        return [done, {"type": "response.content_part.done", **at, "part": part}]

    def _close_all(self) -> list[JSON]:
        events: list[JSON] = []
        for item in self._open:
            if item["type"] in _ARGUMENTS:
                event, key = _ARGUMENTS[item["type"]]
                where = self._where(item)
                events.append({"type": f"response.{event}.done", **where, "name": item["name"], key: item[key]})
            elif item["content"]:
                events += self._close_part(item)
            if "status" in item:
                item["status"] = "incomplete" if self.response["status"] == "incomplete" else "completed"
            index = self._where(item)["output_index"]
            events.append({"type": "response.output_item.done", "output_index": index, "item": item})
        self._open = []
        return events
