"""The events of a provider's stream, each one checked."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any

from ..errors import FailureKind, FormError, ModelCallError
from ..servers import ModelRequest, forms
from ._attempt import Answer

__all__ = ["CheckedEvents", "incomplete_stream", "played", "reading"]


class CheckedEvents:
    """The events of ``answer`` as they come.

    **Errors**: `ModelCallError` for an event that is not JSON, or that says the provider failed in mid-stream.
    """

    def __init__(self, server: str, answer: Answer) -> None:
        assert answer.chunks is not None
        self._server = server
        self._chunks = answer.chunks
        self._reader = forms.EventReader()
        self._ready: deque[forms.SentEvent] = deque()
        self._at_end = False
        self._failure: ModelCallError | None = None

    def __aiter__(self) -> CheckedEvents:
        return self

    async def __anext__(self) -> forms.SentEvent:
        while not self._ready:
            if self._failure is not None:
                raise self._failure
            if self._at_end:
                raise StopAsyncIteration
            try:
                self._take(self._reader.feed(await self._chunks.__anext__()))
            except StopAsyncIteration:
                self._at_end = True
                self._take(self._reader.finish())
        event = self._ready.popleft()
        self._chunks.check(event.data)
        return event

    def _take(self, events: Iterator[forms.SentEvent]) -> None:
        # What came before an event that cannot be read is passed on first.
        try:
            with reading(self._server):
                for event in events:
                    self._ready.append(event)
        except ModelCallError as error:
            self._failure = error


@contextlib.contextmanager
def reading(server: str) -> Iterator[None]:
    """For code that takes an answer apart.

    **Errors**: `ModelCallError` where the answer does not have the form that it must have.
    """
    try:
        yield
    except (FormError, KeyError, TypeError, AttributeError, IndexError, ValueError) as error:
        reason = str(error) if isinstance(error, FormError) else f"{type(error).__name__}: {error}"
        raise ModelCallError(
            f"model server {server}: the back end's answer is not in the form of its API: {reason}",
            status=502,
            kind=FailureKind.PROVIDER_UNAVAILABLE,
        ) from error


def played(server: str, request: ModelRequest, whole: Mapping[str, Any]) -> forms.ReadyPieces:
    """A finished answer in the request's form as the stream that the client asked for. **Errors**: as `reading`."""
    with reading(server):
        return forms.ReadyPieces(list(forms.pieces_of_whole(request.form, whole, request)))


def incomplete_stream(server: str) -> ModelCallError:
    """The error of a stream that ended before its answer was whole."""
    return ModelCallError(
        f"model server {server}: the back end's stream ended before its answer was complete",
        status=502,
        kind=FailureKind.TRANSPORT_PEER_DROP,
    )
