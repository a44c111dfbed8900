"""`MemoryTransport`: requests to an ASGI app in this process, without sockets."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import Any

import trio

from ..errors import Delivery, TransportError
from ..remember import remember
from ._direct import Answer, DirectApp, DirectRoute
from ._disconnect import DISCONNECT_EXTENSION, App, Scope, never_apart, without_watch
from ._encode import KnownHeaders, check_request_line, frame
from ._memory_call import KnownPairs, MemoryCall, StreamedCall, in_messages, path_of, plain_response
from ._message import Origin, Request, Response, StreamedResponse

__all__ = ["MemoryTransport", "begin_work"]

_KNOWN_LINES = 1024
_SHORT_REQUESTS = 8  # that may follow one another within a handler without giving way


class _Line:
    """What all requests with one request line have in common. It is found fit to be sent."""

    __slots__ = ("_scope", "path", "request_line", "route")

    def __init__(self, method: str, target: bytes, origin: Origin, app: App) -> None:
        self.request_line = method, target, origin
        self.path = path_of(target)
        self.route = app.find_direct(method, self.path) if isinstance(app, DirectApp) else None
        self._scope: dict[str, Any] | None = None  # made when the app is first called

    def scope(self) -> dict[str, Any]:
        """A scope of its own for one request. None stands where each has a value of its own."""
        if self._scope is None:
            method, target, origin = self.request_line
            raw_path, _, query = target.partition(b"?")
            self._scope = {
                "type": "http",
                "asgi": None,
                "http_version": "1.1",
                "method": method,
                "scheme": origin.scheme,
                "path": self.path,
                "raw_path": raw_path,
                "query_string": query,
                "root_path": "",
                "headers": None,
                "client": ("127.0.0.1", 0),
                "server": (origin.host, origin.port),
                "extensions": None,
            }
        return self._scope.copy()


class _Work:
    """What is done for one request in memory. The requests that its handler makes in memory are part of it."""

    __slots__ = ("_requests",)

    def __init__(self) -> None:
        self._requests = 0  # since it last gave way

    def gives_way(self) -> bool:
        """One more request: whether it lets other tasks run first."""
        self._requests = (self._requests + 1) % _SHORT_REQUESTS
        return not self._requests


# In the task that serves a request in memory, and in those that its handler starts.
_work: ContextVar[_Work] = ContextVar("gym_trio.http.work")


def begin_work() -> None:
    """Say that this task has been started for one piece of work, and has just been given its turn.

    Its requests in memory, too, then give way every eighth time, as those of a handler do. Without it each does.
    """
    _work.set(_Work())


class MemoryTransport:
    """Calls ``app`` as a server would: a request is one call, in the sender's own task. A `DirectApp` is asked first.

    What a client of a socket would see is seen here. An app that fails before it has sent any of a body gives a 500;
    one that fails later, or whose body is not as long as it said, gives `PeerDropped`. ``state`` is the lifespan's
    state, see `open_lifespan`. An app that goes on after its response (a background task) holds its sender until it
    returns; only a streamed response can be left before.

    **Cancellation**: each call has a checkpoint before the app is called. A cancelled sender's handler is cancelled
    with it, and the handler's cleanup has ended when the cancellation arrives. ``receive`` waits once the body is read
    and gives ``http.disconnect`` when the response is complete. Of the requests that a handler makes in memory while
    it serves one, each can be cancelled, and every eighth gives way to other tasks: a rollout is six requests, and to
    resume all that waits for the innermost of them costs more than some of the handlers do. See `begin_work`, too.

    **Errors**: as `Transport`. What the app raised is logged, as a server would.
    """

    def __init__(
        self, app: App, *, state: dict[str, Any] | None = None, max_body_bytes: int = 64 * 1024 * 1024
    ) -> None:
        self._app = without_watch(app)
        self._state = state
        self._max_body_bytes = max_body_bytes
        self._lines: dict[tuple[str, bytes, Origin], _Line] = {}
        self._known_headers = KnownHeaders()
        self._known_pairs: KnownPairs = {}
        self._closed = False

    def __repr__(self) -> str:
        return f"MemoryTransport({self._app!r})"

    async def send(self, request: Request) -> Response:
        line = self._line(request)
        headers = self._headers(request)
        work = _work.get(None)
        if work is None or work.gives_way():
            await trio.lowlevel.checkpoint()
        else:
            await trio.lowlevel.checkpoint_if_cancelled()
        if request.on_sent is not None:
            request.on_sent()
        outermost = _work.set(_Work()) if work is None else None
        try:
            answering = _ask_directly(line.route, request, headers)
            if answering is None:
                call = MemoryCall(request, self._max_body_bytes, self._known_pairs)
                await call.run(self._app, self._scope(line, headers))
                return call.response()
            found: Answer | Exception
            try:
                found = await answering
            except Exception as exc:  # noqa: BLE001  it is raised again below, where all of an app's go
                found = exc
            else:
                response = plain_response(found, self._max_body_bytes, self._known_pairs)
                if response is not None:
                    return response
            return await in_messages(found, request, self._max_body_bytes, self._known_pairs)
        finally:
            if outermost is not None:
                _work.reset(outermost)

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncIterator[StreamedResponse]:
        scope = self._scope(self._line(request), self._headers(request))
        await trio.lowlevel.checkpoint()
        call = StreamedCall(request, self._known_pairs)
        if request.on_sent is not None:
            request.on_sent()
        failure: BaseException | None = None
        try:
            async with trio.open_nursery() as nursery:
                # What is raised in here is raised again outside, where no nursery wraps it into a group.
                nursery.start_soon(call.run, self._app, scope)
                try:
                    await call.begun.wait()
                    call.check_begun()
                    yield call
                except BaseException as exc:  # noqa: BLE001
                    failure = exc
                if failure is not None or not call.app_is_done:  # the reader has gone
                    nursery.cancel_scope.cancel()
        except* trio.Cancelled:  # the app's, by a cancellation from outside, which is raised again below
            pass
        finally:
            call.leave()
        if failure is not None:
            raise failure
        await trio.lowlevel.checkpoint_if_cancelled()

    async def aclose(self) -> None:
        """Take no more requests. What runs goes on: it belongs to its senders."""
        self._closed = True
        await trio.lowlevel.checkpoint()

    def _line(self, request: Request) -> _Line:
        if self._closed:
            raise TransportError("the transport is closed", delivery=Delivery.NOT_SENT)
        line = (request.method, request.target, request.origin)
        known = self._lines.get(line)
        if known is None:
            check_request_line(request)
            known = remember(self._lines, line, _Line(*line, self._app), _KNOWN_LINES)
        return known

    def _scope(self, line: _Line, headers: list[tuple[bytes, bytes]]) -> Scope:
        scope = line.scope()
        scope["asgi"] = {"version": "3.0", "spec_version": "2.4"}
        scope["headers"] = headers
        scope["extensions"] = {DISCONNECT_EXTENSION: never_apart}
        if self._state is not None:
            scope["state"] = self._state.copy()
        return scope

    def _headers(self, request: Request) -> list[tuple[bytes, bytes]]:
        prepared = self._known_headers.of(request)
        headers = prepared.pairs.copy()
        if not prepared.has_host:
            headers.insert(0, (b"host", request.origin.authority))
        _, framing = frame(request, prepared)
        if framing is not None:
            headers.append(framing)
        return headers


def _ask_directly(
    route: DirectRoute | None, request: Request, headers: list[tuple[bytes, bytes]]
) -> Awaitable[Answer] | None:
    """The answer of ``route``, which takes headers and body alone; None if the app has to be called."""
    body = request.body
    if route is None or not isinstance(body, bytes):
        return None
    answering = route.answer(headers, route.path_params.copy(), body)
    if answering is not None:
        request.handed_over()
    return answering
