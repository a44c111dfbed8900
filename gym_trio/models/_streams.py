"""The events of a provider's stream, each one checked."""

from __future__ import annotations

from collections.abc import AsyncIterator

from ..errors import FailureKind, FormError, ModelCallError
from ..servers import forms
from ._attempt import Answer

__all__ = ["checked_events", "incomplete_stream"]


async def checked_events(server: str, answer: Answer) -> AsyncIterator[forms.SentEvent]:
    """The events of ``answer`` as they come.

    **Errors**: `ModelCallError` for an event that is not JSON, or that says the provider failed in mid-stream.
    """
    assert answer.chunks is not None
    reader = forms.EventReader()
    try:
        async for chunk in answer.chunks:
            for event in reader.feed(chunk):
                answer.chunks.check(event.data)
                yield event
        for event in reader.finish():
            answer.chunks.check(event.data)
            yield event
    except FormError as error:
        raise ModelCallError(
            f"model server {server}: {error}", status=502, kind=FailureKind.PROVIDER_UNAVAILABLE
        ) from None


def incomplete_stream(server: str) -> ModelCallError:
    """The error of a stream that ended before its answer was whole."""
    return ModelCallError(
        f"model server {server}: the back end's stream ended before its answer was complete",
        status=502,
        kind=FailureKind.TRANSPORT_PEER_DROP,
    )
