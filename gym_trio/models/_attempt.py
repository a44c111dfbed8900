"""One attempt at a provider: the request, the answer or the reason why there is none."""

from __future__ import annotations

import contextlib
import time
from collections.abc import AsyncIterator, Collection, Mapping
from typing import Any

import trio

from .. import errors
from ..errors import FailureKind, ModelCallError
from ..http import Request, Response, StreamedResponse, Transport
from ..servers import Attempt, ModelRequest, forms
from ._endpoint import Endpoint
from ._provider_settings import ProviderSettings
from ._refusals import Refusal, failed_in_stream, refusal_of, status_of_failure, unreadable

__all__ = ["Answer", "Chunks", "ProviderAttempt"]

SUCCESS = range(200, 300)
MAX_WHOLE_BYTES = 64 * 1024 * 1024

_TRANSPORT_KINDS: tuple[tuple[type[errors.TransportError], FailureKind], ...] = (
    (errors.ConnectFailed, FailureKind.TRANSPORT_UNREACHABLE),
    (errors.TransportTimeout, FailureKind.TRANSPORT_TIMEOUT),
    (errors.LocalResourceError, FailureKind.TRANSPORT_LOCAL_RESOURCE),
    (errors.TransportError, FailureKind.TRANSPORT_PEER_DROP),
)


class ProviderAttempt:
    """One request to one endpoint.

    ``refusal`` says, when `make` gave no answer, why; ``advised_seconds`` is the provider's ``Retry-After``.
    """

    refusal: Refusal

    def __init__(
        self, server: str, endpoint: Endpoint, path: str, settings: ProviderSettings, secrets: Collection[str]
    ) -> None:
        self.endpoint = endpoint
        self.url = endpoint.url_of(path)
        self.advised_seconds: float | None = None
        self._server = server
        self._path = path
        self._settings = settings
        self.secrets = secrets
        self._scope = trio.CancelScope()
        self._ends_at = 0.0

    @contextlib.asynccontextmanager
    async def make(
        self,
        transport: Transport,
        request: ModelRequest,
        body: Mapping[str, Any] | None,
        *,
        waited: float,
        streamed: bool,
    ) -> AsyncIterator[Answer | None]:
        """The answer, or ``None`` when the attempt failed. A streamed one is alive for the length of the block.

        Notes itself on ``request``, however it ends.

        **Errors**: `ModelCallError` when the bounds of the attempt pass.
        """
        began, wall = time.perf_counter(), time.time()
        answer: Answer | None = None
        error: str | None = None
        self._ends_at = self._scope.deadline = trio.current_time() + self._settings.attempt_seconds
        try:
            async with contextlib.AsyncExitStack() as stack:
                stack.enter_context(self._scope)
                answer = await self._try(stack, transport, self.endpoint.request(self._path, body), streamed)
                error = None if answer is not None else self.refusal.message
                yield answer
            if self._scope.cancelled_caught:
                raise self.error(self._too_slow(answer))
        except trio.Cancelled:
            error = "cancelled"
            raise
        except Exception as failed:
            error = str(failed)
            raise
        finally:
            seconds = time.perf_counter() - began
            status = answer.status if answer is not None else self._refused_status()
            request.attempts.append(Attempt(self.url, status, error, wall, waited, seconds))

    async def _try(
        self, stack: contextlib.AsyncExitStack, transport: Transport, sent: Request, streamed: bool
    ) -> Answer | None:
        try:
            if not streamed:
                return self._judge(await transport.send(sent))
            stream = await stack.enter_async_context(transport.stream(sent))
            media_type = stream.headers.get("content-type", "")
            if stream.status in SUCCESS and "event-stream" in media_type:
                return Answer(200, chunks=Chunks(self, stream))
            return self._judge(await _whole(stream))
        except errors.TransportError as lost:
            self.refusal = _lost(lost)
            return None

    def _judge(self, response: Response) -> Answer | None:
        media_type = response.headers.get("content-type", "")
        self.advised_seconds = response.retry_after_seconds()
        if response.status not in SUCCESS:
            self.refusal = refusal_of(response.status, response.body, media_type, self.secrets)
            return None
        body = forms.read_object(response.body)
        if body is None:
            self.refusal = unreadable(response.status, response.body, media_type, self.secrets)
            return None
        status = status_of_failure(body)
        if status is not None:
            self.refusal = refusal_of(status, response.body, media_type, self.secrets)
            return None
        return Answer(200, body=body)

    def error(self, refusal: Refusal, tried: str = "") -> ModelCallError:
        """The error that ends a call with ``refusal``."""
        return ModelCallError(
            f"model server {self._server}: {self.url} {refusal.message}{tried}",
            status=refusal.status,
            kind=refusal.kind,
            body=refusal.body,
            terminal=refusal.terminal,
            retry_after_seconds=self.advised_seconds,
        )

    def _refused_status(self) -> int | None:
        refusal = getattr(self, "refusal", None)
        return refusal.status if refusal is not None and refusal.answered else None

    def _too_slow(self, answer: Answer | None) -> Refusal:
        settings = self._settings
        if answer is not None and trio.current_time() < self._ends_at:
            said = f"was silent for {settings.idle_seconds:g} s in the middle of its answer"
        else:
            said = f"gave no whole answer within {settings.attempt_seconds:g} s"
        return Refusal(504, said, None, FailureKind.TRANSPORT_TIMEOUT, retryable=False, terminal=False, answered=False)


def _lost(error: errors.TransportError) -> Refusal:
    kind = next(found for base, found in _TRANSPORT_KINDS if isinstance(error, base))
    not_sent = error.delivery is not errors.Delivery.POSSIBLY_DELIVERED
    advice = " (is it running? check the base URL)" if not_sent else ""
    said = f"gave no whole answer: {error}{advice}"
    return Refusal(502, said, None, kind, retryable=not_sent, terminal=False, answered=False)


async def _whole(stream: StreamedResponse) -> Response:
    parts: list[bytes] = []
    length = 0
    async for chunk in stream:
        parts.append(chunk)
        length += len(chunk)
        if length > MAX_WHOLE_BYTES:
            raise errors.ProtocolError(f"the answer is larger than {MAX_WHOLE_BYTES} bytes")
    return Response(stream.status, stream.raw_headers, b"".join(parts))


class Answer:
    """An answer of status 200: a JSON object in ``body``, or a stream of ``chunks``."""

    def __init__(self, status: int, *, body: dict[str, Any] | None = None, chunks: Chunks | None = None) -> None:
        self.status = status
        self.body = body
        self.chunks = chunks


class Chunks:
    """The bytes of a streamed answer.

    **Errors**: `ModelCallError` when the connection ends before the stream is complete.
    """

    def __init__(self, attempt: ProviderAttempt, stream: StreamedResponse) -> None:
        self._attempt = attempt
        self._stream = stream

    def check(self, event: dict[str, Any] | None) -> None:
        """**Errors**: `ModelCallError` when ``event`` says that the provider failed in mid-stream."""
        if event is None:
            return
        found = event.get("response") if event.get("type") == "response.failed" else event
        error = found.get("error") if isinstance(found, dict) else None
        if "error" in (event.get("type"), event.get("object")) and not isinstance(error, dict):
            error = {"message": error or event.get("message"), "code": event.get("code"), "type": "server_error"}
        if error:
            raise self._attempt.error(failed_in_stream(error, self._attempt.secrets))

    def __aiter__(self) -> Chunks:
        return self

    async def __anext__(self) -> bytes:
        attempt = self._attempt
        # Only while the provider is waited for: a client that reads slowly is not the provider's silence.
        attempt._scope.deadline = min(attempt._ends_at, trio.current_time() + attempt._settings.idle_seconds)
        try:
            return await self._stream.__anext__()
        except errors.TransportError as lost:
            raise attempt.error(_lost(lost)) from None
        finally:
            if not attempt._scope.cancel_called:
                attempt._scope.deadline = attempt._ends_at
