"""`CancelOnDisconnect`: the ASGI layer that cancels a handler when its client goes.

Two ways to do so, chosen per request:

- The server does it. One that puts `DISCONNECT_EXTENSION` into ``scope["extensions"]`` cancels the call when asked to,
  and the layer costs nothing: no task, no step, no scope.
- Everywhere else a task waits in ``receive()``, reads the body ahead of the handler, and sees the disconnect behind it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import trio

__all__ = [
    "DISCONNECT_EXTENSION",
    "App",
    "AskToCancel",
    "CancelOnDisconnect",
    "Message",
    "Receive",
    "Scope",
    "Send",
    "never_apart",
    "without_watch",
]

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

# The value under this key is an async function without arguments. Awaiting it asks the server to cancel the call when
# the client goes before the response is complete, and never afterwards; if it has gone already, the await is.
# It returns when the body has arrived, since a departure can hide behind bytes that nobody reads.
DISCONNECT_EXTENSION = "gym_trio.cancel_on_disconnect"
AskToCancel = Callable[[], Awaitable[None]]


async def never_apart() -> None:
    """The extension's value where client and handler share a task: there is no departure to be told of."""


# How long a disconnect that arrives during the last send may still be the end of the response, and no departure.
_LAST_MESSAGE_SECONDS = 2.0


class CancelOnDisconnect:
    """Wraps an ASGI app: when the client goes before the response is complete, the handler's scope is cancelled.

    It belongs outermost, for layers around it may be cancelled with it, and only it reads ``receive``. End of input
    counts as leaving, because TCP cannot tell a client that closed from one that only stopped sending. A client that
    has gone before the handler started has no handler started for it. Scopes other than ``http`` pass through.

    The body is read before the handler runs, up to the server's limit; a client that waits for a 100 (``Expect``) gets
    it when the handler asks for the body. What a client sends behind its request hides its leaving once it fills the
    socket's buffer, some 100 kB; our own client sends nothing there.

    **Cancellation**: a handler that ends because its client went ends quietly. A cancellation from outside passes
    through, unchanged.

    **Errors**: what the handler itself raises is raised, also while it is being cancelled.

    **Ownership**: on servers without the extension, up to ``read_ahead_bytes`` of a body that the handler has not asked
    for are held; past them reading pauses, and with it the detection. The default is our server's own limit on bodies.
    """

    def __init__(self, app: App, *, read_ahead_bytes: int = 64 * 1024 * 1024) -> None:
        self._app = app
        self._read_ahead_bytes = read_ahead_bytes

    def __repr__(self) -> str:
        return f"CancelOnDisconnect({self._app!r})"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        ask_to_cancel: AskToCancel | None = (scope.get("extensions") or {}).get(DISCONNECT_EXTENSION)
        if ask_to_cancel is None:
            await _Watched(receive, send, self._read_ahead_bytes).run(self._app, scope)
            return
        if ask_to_cancel is not never_apart:
            await ask_to_cancel()
        await self._app(scope, receive, send)


def without_watch(app: App) -> App:
    """``app`` as it is called where client and handler share a task: a layer that is outermost has nothing to do."""
    while type(app) is CancelOnDisconnect:
        app = app._app
    return app


class _Watched:
    """One request on a server without the extension: a task in ``receive()`` beside the handler."""

    def __init__(self, receive: Receive, send: Send, read_ahead_bytes: int) -> None:
        self._receive = receive
        self._send = send
        self._handler = trio.CancelScope()
        self._inbox: deque[Message] = deque()
        self._arrived = trio.Event()  # replaced after each use; set when the inbox has grown or the client has gone
        self._room = trio.Event()  # replaced after each use; set when the handler has taken a message
        self._read_ahead_bytes = read_ahead_bytes
        self._held_bytes = 0
        self._gone = False
        self._complete = False  # the last byte of the response has been sent: a disconnect means nothing any more
        self._ending: trio.Event | None = None  # made when the last message is handed over; set when that is done

    async def run(self, app: App, scope: Scope) -> None:
        self._keep(await self._receive())
        if self._gone:
            return
        failure: BaseException | None = None
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._watch)
                with self._handler:
                    await app(scope, self.receive, self.send)
                nursery.cancel_scope.cancel()
        except BaseExceptionGroup as group:
            # The nursery wraps what the handler raised; unwrapped, the layer is invisible to error handling outside.
            failure = _alone(group)
            if failure is None:
                raise
        if failure is not None:
            raise failure

    async def _watch(self) -> None:
        while not self._gone:
            while self._held_bytes > self._read_ahead_bytes:
                self._room = trio.Event()
                await self._room.wait()
            self._keep(await self._receive())
        if self._ending is not None:
            # Servers announce a disconnect at the end of a response too, some before the last send has returned.
            with trio.move_on_after(_LAST_MESSAGE_SECONDS):
                await self._ending.wait()
        if not self._complete:
            self._handler.cancel()

    def _keep(self, message: Message) -> None:
        if message["type"] == "http.disconnect":
            self._gone = True
        else:
            self._held_bytes += len(message.get("body", b""))
            self._inbox.append(message)
        self._arrived.set()

    async def receive(self) -> Message:
        while not self._inbox:
            if self._gone:
                if not self._complete:
                    await trio.lowlevel.checkpoint_if_cancelled()
                return {"type": "http.disconnect"}
            self._arrived = trio.Event()
            await self._arrived.wait()
        message = self._inbox.popleft()
        self._held_bytes -= len(message.get("body", b""))
        self._room.set()
        return message

    async def send(self, message: Message) -> None:
        if message["type"] != "http.response.body" or message.get("more_body", False):
            await self._send(message)
            return
        self._ending = trio.Event()
        try:
            await self._send(message)
            self._complete = True
        finally:
            self._ending.set()


def _alone(group: BaseExceptionGroup[BaseException]) -> BaseException | None:
    """The one exception that ``group`` is about: its only one, or any of those that cancel the whole call."""
    if group.split(trio.Cancelled)[1] is None:
        leaf: BaseException = group
        while isinstance(leaf, BaseExceptionGroup):
            leaf = leaf.exceptions[0]
        return leaf
    return group.exceptions[0] if len(group.exceptions) == 1 else None
