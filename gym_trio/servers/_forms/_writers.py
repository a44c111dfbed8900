"""Responses events and finished answers as the bytes of a stream in any form."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Protocol

from ._chat_answers import chat_to_responses
from ._chat_streams import ChatWriter
from ._events import FINAL_EVENTS, events_of_response
from ._messages_answers import messages_to_responses
from ._messages_streams import MessagesWriter
from ._parts import JSON
from ._sse import StreamPiece, sse

__all__ = ["EventWriter", "ResponsesWriter", "error_event", "open_writer", "pieces_of_whole"]


class EventWriter(Protocol):
    """Takes Responses events and gives back what a client of its form is sent."""

    def feed(self, event: Mapping[str, Any]) -> StreamPiece: ...


class ResponsesWriter:
    """Writes Responses events as they are, numbered."""

    def __init__(self) -> None:
        self._number = -1

    def feed(self, event: Mapping[str, Any]) -> StreamPiece:
        self._number += 1
        whole = event["response"] if event["type"] in FINAL_EVENTS else None
        return StreamPiece(sse({**event, "sequence_number": self._number}, event["type"]), whole)


def open_writer(form: str, request: Mapping[str, Any]) -> EventWriter:
    """The writer for a client that asked in ``form`` with ``request``."""
    if form == "responses":
        return ResponsesWriter()
    return ChatWriter(request) if form == "chat_completions" else MessagesWriter()


def pieces_of_whole(form: str, whole: Mapping[str, Any], request: Mapping[str, Any]) -> Iterator[StreamPiece]:
    """The stream of an answer that is finished already; ``whole`` is in ``form``."""
    response = whole
    if form == "chat_completions":
        response = chat_to_responses(whole)
    elif form == "messages":
        response = messages_to_responses(whole)
    writer = open_writer(form, request)
    return (writer.feed(event) for event in events_of_response(response))


def error_event(form: str, body: JSON) -> bytes:
    """The event that ends a stream which cannot go on; ``body`` is the error in ``form``."""
    if form == "responses":
        error = body.get("error") or {}
        data = {"type": "error", "code": error.get("code"), "message": error.get("message"), "param": None}
        return sse(data, "error")
    return sse(body, "error") if form == "messages" else sse(body)
