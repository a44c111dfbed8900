"""`ModelServer`: one model behind the three APIs, plain and under a rollout's prefix."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Mapping
from typing import TYPE_CHECKING, Any, cast

import orjson

from .. import errors
from ..http import Answer
from . import _forms as forms
from ._authored import pending, sparing
from ._body import (
    JSON_CONTENT,
    DirectEndpoint,
    HeaderList,
    PathParams,
    Receive,
    RequestBody,
    Scope,
    Send,
    encode_json,
    orjson_bytes,
    parse_object,
    read_body,
    send_content,
)
from ._failures import failure_of, failure_to_wire
from ._model_calls import CallOutcome, ModelCall, ModelCallRecorder, ModelRequest
from ._server import Server

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager

    from starlette.routing import BaseRoute

__all__ = ["ModelServer"]

Content = bytes | dict[str, Any]  # a body, parsed or not

logger = logging.getLogger("gym_trio.servers")

PATHS = {
    "responses": "/v1/responses",
    "chat_completions": "/v1/chat/completions",
    "messages": "/v1/messages",
}
EVENT_STREAM = [(b"content-type", b"text/event-stream; charset=utf-8"), (b"cache-control", b"no-cache")]


class ModelServer(Server):
    """The server that answers model calls.

    Override `responses` and all three APIs work, streaming included: requests and answers are converted, and a client
    that asked for a stream gets the events of the finished answer. Override `chat_completions`, `messages` or `stream`
    too where the back end can do better. The first three may be plain ``def``s; those too run on the server's loop, and
    must not block.

    ``recorder``, when set, is given a `ModelCall` for every call, failed and cancelled ones included.

    **Errors**: `FormError` is answered 400; `ModelCallError` with the provider's own status and body; what else a
    method raises is logged and answered 500. All of them in the form that the client speaks, with the failure's kind
    beside it for gym_trio's own callers.

    **Cancellation**: a client that leaves cancels its call, a stream included.
    """

    server_type = "responses_api_models"
    keeps_sessions = False
    recorder: ModelCallRecorder | None = None

    async def responses(self, request: ModelRequest) -> Mapping[str, Any]:
        """Answer a Responses request with a Responses object."""
        raise NotImplementedError(f"{type(self).__name__} must define responses()")

    async def chat_completions(self, request: ModelRequest) -> Mapping[str, Any]:
        """Answer a Chat Completions request. Default: through `responses`."""
        body = forms.chat_request_to_responses(request)
        return forms.responses_to_chat(await pending(self.responses(request.in_form("responses", body))))

    async def messages(self, request: ModelRequest) -> Mapping[str, Any]:
        """Answer a Messages request. Default: through `responses`."""
        body = forms.messages_request_to_responses(request)
        return forms.responses_to_messages(await pending(self.responses(request.in_form("responses", body))))

    def stream(self, request: ModelRequest) -> AbstractAsyncContextManager[AsyncIterator[forms.StreamPiece]]:
        """The answer to ``request`` as pieces of a stream in ``request.form``. Default: from the finished answer.

        **Errors**: what is raised on entering is answered with a status; what is raised later, as an error event.
        """
        return self._stream_whole(request)

    @contextlib.asynccontextmanager
    async def _stream_whole(self, request: ModelRequest) -> AsyncIterator[AsyncIterator[forms.StreamPiece]]:
        whole = await self.answer(request)
        yield forms.ReadyPieces(forms.pieces_of_whole(request.form, whole, request))

    def answer(self, request: ModelRequest) -> Awaitable[Mapping[str, Any]]:
        """The whole answer to ``request`` in its own form."""
        return pending(getattr(self, request.form)(request))

    def routes(self) -> list[BaseRoute]:
        from starlette.routing import Route

        prefixes = ("/ng-rollout/{rollout_id}", "", "/ng-rollout/{rollout_id}/training-token-capture")
        made: list[BaseRoute] = [
            Route(prefix + path, endpoint=ModelEndpoint(self, form), methods=["POST"])
            for prefix in prefixes
            for form, path in PATHS.items()
        ]
        made += [
            self.route("GET", "/v1/models", self._list_models),
            self.route("GET", "/ng-rollout/{rollout_id}/v1/models", self._list_models),
            self.route("POST", "/ng-rollout/{rollout_id}/flush_model_calls", self._flush),
        ]
        return [*made, *super().routes()]

    async def _list_models(self, _: RequestBody) -> dict[str, Any]:
        # Clients ask for it to see whether the endpoint is there; the name that they then use is replaced anyway.
        return {"object": "list", "data": [{"id": self.name, "object": "model", "created": 0, "owned_by": "gym_trio"}]}

    async def _flush(self, request: RequestBody) -> dict[str, Any]:
        """For a collector in another process: wait until the rollout's calls are kept."""
        complete = self.recorder is None or await self.recorder.flush(request.path_params["rollout_id"])
        return {"recorded": self.recorder is not None, "complete": complete}


class ModelEndpoint(DirectEndpoint):
    """The ASGI endpoint of one API of a model server."""

    def __init__(self, server: ModelServer, form: str) -> None:
        self._server = server
        self._form = form

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            content = await read_body(receive)
        except errors.PeerDropped:
            return
        carrying_out = self._carry_out(scope["headers"], scope.get("path_params") or {}, content, send)
        del content  # a provider may take minutes
        await carrying_out

    def direct(self, headers: HeaderList, path_params: PathParams, content: bytes) -> Awaitable[Answer] | None:
        try:
            body = _parse(content)
        except errors.RequestRefused:
            return None  # it is refused in the way of the others
        if body.get("stream"):
            return None
        return cast(Awaitable[Answer], self._carry_out(headers, path_params, body, None))

    async def _carry_out(
        self, headers: HeaderList, path_params: PathParams, content: Content, send: Send | None
    ) -> Answer | None:
        """Answer the request with the body ``content``, parsed or not; None for a stream, which has been sent.

        With ``send`` a whole answer is sent too: the call is over, and recorded, when that is done.
        """
        call = _Call(self._server, self._form)
        try:
            answering = call.answer(headers, path_params, content, send)
            del content
            answer = await answering
            if answer is not None and send is not None:
                await send_content(send, *answer)
            return answer
        except BaseException:
            if call.outcome is CallOutcome.COMPLETED:
                call.outcome = CallOutcome.CANCELLED
            raise
        finally:
            call.record()


class _Call:
    """One call on its way through the endpoint, and what its record will say."""

    _request: ModelRequest | None = None
    outcome = CallOutcome.COMPLETED
    _response: dict[str, Any] | None = None
    _status: int | None = None
    _error: str | None = None
    _first_byte: float | None = None

    def __init__(self, server: ModelServer, form: str) -> None:
        self._server = server
        self._form = form
        self._attempts: list[Any] = []
        self._wall = time.time()
        self._start = time.perf_counter()

    async def answer(
        self, headers: HeaderList, path_params: PathParams, content: Content, send: Send | None
    ) -> Answer | None:
        """The whole answer, or the refusal; None when there was a stream, which has been sent to its end."""
        try:
            body = _parse(content) if isinstance(content, bytes) else content
            request = ModelRequest(body, headers, path_params)
            del content, body
            request.form, request.attempts = self._form, self._attempts
            self._request = request
            if self._server.recorder is not None:
                self._server.recorder.begin(request.rollout_id)
            if send is not None and request.get("stream"):
                await self._stream(request, send)
                return None
            whole = await self._server.answer(request)
            answer = 200, (JSON_CONTENT,), orjson_bytes(whole)
            self._response = whole if isinstance(whole, dict) else dict(whole)
        except BaseException as raised:
            error = sparing(raised)
            if not isinstance(error, errors.GymError):
                logger.error("model server %s: a call failed", self._server.name, exc_info=True)
            return await self._refuse(error, send)
        self._begin(200)
        return answer

    async def _stream(self, request: ModelRequest, send: Send) -> None:
        async with self._server.stream(request) as pieces:
            async for piece in pieces:
                if self._status is None:
                    self._begin(200)
                    await send({"type": "http.response.start", "status": 200, "headers": EVENT_STREAM})
                if piece.whole is not None:
                    self._response = piece.whole
                if piece.content:
                    await send({"type": "http.response.body", "body": piece.content, "more_body": True})
        if self._status is None:
            raise errors.ModelCallError(
                f"model server {self._server.name}: the stream ended before its first event",
                status=502,
                kind=errors.FailureKind.PROVIDER_UNAVAILABLE,
            )
        await send({"type": "http.response.body", "body": b""})

    def _begin(self, status: int) -> None:
        self._status = status
        self._first_byte = time.perf_counter() - self._start

    async def _refuse(self, error: Exception, send: Send | None) -> Answer | None:
        """What ``error`` is answered with; None when it was sent, as the last event of a stream that had begun."""
        status, body, retry_after = _error_answer(self._form, error)
        # Half a character in an author's message must not take the whole refusal, nor its record, along.
        body = forms.read_object(encode_json(body)) or body
        self.outcome, self._error = CallOutcome.FAILED, str(body["failure"]["failure_reason"])
        if send is not None and self._status is not None:
            content = forms.error_event(self._form, body)
            self._status = status
            await send({"type": "http.response.body", "body": content})
            return None
        headers = [JSON_CONTENT]
        if retry_after is not None:
            headers.append((b"retry-after", b"%d" % max(0, round(retry_after))))
        self._begin(status)
        return status, headers, orjson.dumps(body)

    def record(self) -> None:
        recorder, request = self._server.recorder, self._request
        if recorder is None or request is None:
            return
        call = ModelCall(
            server=self._server.name,
            rollout_id=request.rollout_id,
            api=self._form,
            request=request,
            response=self._response,
            outcome=self.outcome,
            status=self._status,
            error=self._error,
            started_at=self._wall,
            duration_seconds=time.perf_counter() - self._start,
            first_byte_seconds=self._first_byte,
            streamed=bool(request.get("stream")),
            attempts=tuple(self._attempts),
        )
        try:
            recorder.record(call)
        except BaseException as raised:
            # The answer is the client's all the same: in messages it has been sent.
            logger.error("model server %s: its recorder raised", self._server.name, exc_info=sparing(raised))


def _error_answer(form: str, error: Exception) -> tuple[int, dict[str, Any], float | None]:
    """The status, body and retry advice that ``error`` is answered with."""
    if isinstance(error, errors.ModelCallError):
        failure = errors.RolloutFailure(error.kind, str(error), error.status, terminal=error.terminal)
        _, wire = failure_to_wire(failure)
        body = forms.error_body(form, error.status, str(error), error.body)
        return error.status, {**body, "failure": wire["failure"]}, error.retry_after_seconds
    if isinstance(error, errors.RequestRefused):
        status, message, terminal = error.status, str(error.detail), True
    elif isinstance(error, errors.FormError):
        status, message, terminal = 400, str(error), True
    else:
        status, message, terminal = 500, str(failure_of(error)), False
    failure = errors.RolloutFailure(
        errors.FailureKind.AGENT_RUN_ERROR, message, status, terminal=terminal, exception_type=type(error).__name__
    )
    _, wire = failure_to_wire(failure)
    return status, {**forms.error_body(form, status, message), "failure": wire["failure"]}, None


def _parse(content: bytes) -> dict[str, Any]:
    value = parse_object(content)
    if not isinstance(value.get("stream_options") or {}, dict):
        raise errors.RequestRefused(400, "'stream_options' must be an object")
    return value
