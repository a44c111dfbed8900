"""`WebSocket`: the client's end of one WebSocket connection.

The frames are wsproto's, which comes with hypercorn; sockets, TLS and bounds are those of the socket transport.
"""

from __future__ import annotations

import enum
import math
import ssl
from collections import deque
from collections.abc import Awaitable, Callable, Sequence

import httpx
import trio
import wsproto
from wsproto import events
from wsproto.utilities import LocalProtocolError, RemoteProtocolError

from ..errors import PeerDropped, ProtocolError, ResponseError, TransportError, TransportTimeout
from ._connector import Connector
from ._message import Origin
from ._origin_connection import WOULD_BLOCK, Connection
from ._settings import TransportSettings

__all__ = ["WebSocket", "connect_websocket"]

MAX_MESSAGE_BYTES = 64 * 1024 * 1024
_READ_BYTES = 64 * 1024
_MAX_REASON_BYTES = 2000

Headers = Sequence[tuple[bytes, bytes]]
Wait = Callable[[int], Awaitable[None]]


class _State(enum.Enum):
    SHAKING_HANDS = enum.auto()  # the upgrade was asked for and not answered
    OPEN = enum.auto()
    CLOSING = enum.auto()  # a close frame was sent from here; the peer's is awaited
    ENDED = enum.auto()  # the socket is closed


class WebSocket:
    """Text messages both ways over one connection. Made by `connect_websocket`.

    A task of its own reads, so that pings are answered however long nobody asks for a message. What has been received
    and not taken is bounded, all messages together, by ``max_message_bytes``.

    **Cancellation**: a `send` that is cut closes the connection, for half a frame cannot be taken back; `receive` can
    be cut and called again.

    **Errors**: `PeerDropped` when the connection ends, with the peer's code and reason where it gave them;
    `ProtocolError` for what is no WebSocket, and for a message that is too large. What came before it is received
    first.

    **Ownership**: whoever made it calls `aclose` or `abort`. The reading task ends with the connection.
    """

    def __init__(
        self, origin: Origin, connection: Connection, settings: TransportSettings, max_message_bytes: int
    ) -> None:
        self._origin = origin
        self._connection = connection
        self._write_seconds = settings.write_seconds
        self._max_bytes = max_message_bytes
        self._protocol = wsproto.WSConnection(wsproto.ConnectionType.CLIENT)
        self._state = _State.SHAKING_HANDS
        self._failure: TransportError | ResponseError | None = None  # why it has ended
        self._accepted = False  # the upgrade was answered with one
        self._refused_status: int | None = None
        self._refused_body = b""
        self._sending = trio.Lock()
        self._news = trio.Event()
        self._messages: deque[str] = deque()
        self._parts: list[str] = []
        self._held_bytes = 0  # of messages and parts that nobody has taken

    def __repr__(self) -> str:
        return f"<WebSocket to {self._origin}, {self._state.name}>"

    @property
    def is_open(self) -> bool:
        """Whether a message can be sent, as far as is known here."""
        return self._state is _State.OPEN

    async def send(self, text: str) -> None:
        """Send one message."""
        if self._state is not _State.OPEN:
            await trio.lowlevel.checkpoint()
            raise self._reason()
        await self._transmit(events.TextMessage(data=text))

    async def receive(self) -> str:
        """The next message. One task at a time may wait."""
        await trio.lowlevel.checkpoint()
        while not self._messages:
            if self._state is _State.ENDED:
                raise self._reason()
            await self._news.wait()
        text = self._messages.popleft()
        self._held_bytes -= len(text.encode())
        return text

    async def wait_ended(self) -> None:
        """Until the connection has ended, whoever ended it; messages that still come are left unread."""
        while self._state is not _State.ENDED:
            await self._news.wait()
        await trio.lowlevel.checkpoint()

    async def aclose(self) -> None:
        """Say goodbye and wait for the peer's answer to it. Idempotent.

        **Cancellation**: closes the socket at once; the caller's scope bounds the wait.

        **Errors**: none.
        """
        try:
            if self._state is _State.OPEN:
                self._state = _State.CLOSING
                await self._transmit(events.CloseConnection(code=1000))
            await self.wait_ended()
        except TransportError:
            pass  # it has ended in another way
        finally:
            self.abort()

    def abort(self) -> None:
        """Close the socket at once, without a word. Idempotent; needs no await."""
        self._end(PeerDropped(f"{self._origin}: the connection was closed at this end"))

    # What happens inside.

    async def shake_hands(self, target: str, headers: Headers) -> None:
        """Ask for the upgrade and wait for the answer. **Errors**: `ResponseError` for a refusal; `TransportError`."""
        host = self._origin.authority.decode()
        await self._transmit(events.Request(host=host, target=target, extra_headers=list(headers)))
        try:
            while self._state is _State.SHAKING_HANDS:
                await self._read_once()
        except TransportError:
            if self._refused_status is None:  # else what is missing is the rest of an explanation
                raise
        if self._refused_status is not None:
            raise self._refusal(self._refused_status)
        if not self._accepted:
            raise self._reason()

    async def read_until_the_end(self) -> None:
        """The reading task."""
        try:
            while self._state in (_State.OPEN, _State.CLOSING):
                await self._read_once()
        except TransportError as error:
            self._end(error)
        finally:
            self.abort()

    async def _read_once(self) -> None:
        """Take in what the socket has, and answer what must be answered."""
        data = await self._read_bytes()
        if not data:
            self._end(PeerDropped(f"{self._origin}: the connection was lost"))
            return
        try:
            self._protocol.receive_data(data)
            found = list(self._protocol.events())
        except RemoteProtocolError as error:
            raise ProtocolError(f"{self._origin}: {error or 'what came is no WebSocket'}") from None
        breach = self._protocol.state is wsproto.connection.ConnectionState.OPEN
        answers = [answer for event in found if (answer := self._take(event)) is not None]
        for answer in answers:
            await self._transmit(answer)
        for event in found:
            if isinstance(event, events.CloseConnection):
                self._end(self._goodbye(event, breach))

    def _take(self, event: events.Event) -> events.Event | None:
        """Note what one event means; return what is to be sent for it."""
        match event:
            case events.AcceptConnection():
                self._state = _State.OPEN
                self._accepted = True
            case events.RejectConnection():
                self._refused_status = event.status_code
                if not event.has_body:
                    self._end(self._refusal(event.status_code))
            case events.RejectData():
                self._refused_body += event.data[:_MAX_REASON_BYTES]
                if event.body_finished and self._refused_status is not None:
                    self._end(self._refusal(self._refused_status))
            case events.TextMessage():
                self._collect(event)
            case events.BytesMessage():
                raise ProtocolError(f"{self._origin}: a binary message came where only text is spoken")
            case events.Ping():
                return event.response()
            case events.CloseConnection() if self._state is _State.OPEN:
                return event.response()
        return None

    def _collect(self, part: events.TextMessage) -> None:
        self._held_bytes += len(part.data.encode())
        if self._held_bytes > self._max_bytes:
            raise ProtocolError(f"{self._origin}: a message of more than {self._max_bytes} bytes")
        self._parts.append(part.data)
        if part.message_finished:
            self._messages.append("".join(self._parts))
            self._parts.clear()
            self._tell()

    async def _transmit(self, event: events.Event) -> None:
        async with self._sending:
            try:
                data = self._protocol.send(event)
            except LocalProtocolError:  # the peer has said goodbye meanwhile
                raise self._reason() from None
            try:
                await self._write(data)
            except BaseException:
                self.abort()
                raise

    async def _read_bytes(self) -> bytes:
        await trio.lowlevel.checkpoint()
        while True:
            try:
                return self._connection.sock.recv(_READ_BYTES)
            except ssl.SSLWantWriteError:
                await self._ready(trio.lowlevel.wait_writable)
            except WOULD_BLOCK:
                await self._ready(trio.lowlevel.wait_readable)
            except OSError as error:
                raise self._lost(error) from error

    async def _write(self, data: bytes) -> None:
        await trio.lowlevel.checkpoint()
        rest = memoryview(data)
        while rest:
            try:
                rest = rest[self._connection.sock.send(rest) :]
            except ssl.SSLWantReadError:
                await self._ready(trio.lowlevel.wait_readable, self._write_seconds)
            except WOULD_BLOCK:
                await self._ready(trio.lowlevel.wait_writable, self._write_seconds)
            except OSError as error:
                raise self._lost(error) from error

    async def _ready(self, wait: Wait, bound_seconds: float = math.inf) -> None:
        with trio.move_on_after(bound_seconds):
            try:
                await wait(self._connection.fd)
            except (trio.ClosedResourceError, OSError) as error:  # aborted by another task
                raise self._reason() from error
            return
        raise TransportTimeout(f"{self._origin}: no byte of a message was taken within {bound_seconds:g} s")

    def _lost(self, error: OSError) -> TransportError | ResponseError:
        return self._failure or PeerDropped(f"{self._origin}: the connection was lost ({error})")

    def _refusal(self, status: int) -> ResponseError:
        body = self._refused_body.decode("utf-8", "replace")
        return ResponseError(
            f"{self._origin}: no WebSocket there, the answer was {status}",
            server=str(self._origin),
            status=status,
            body=body,
        )

    def _goodbye(self, event: events.CloseConnection, breach: bool) -> TransportError:
        why = f"code {event.code}{f': {event.reason}' if event.reason else ''}"
        if breach:  # wsproto's own words for what the peer sent
            return ProtocolError(f"{self._origin}: what came is no WebSocket message ({why})")
        return PeerDropped(f"{self._origin}: the peer closed the connection ({why})")

    def _reason(self) -> TransportError | ResponseError:
        return self._failure or PeerDropped(f"{self._origin}: the connection is closing")

    def _end(self, failure: TransportError | ResponseError) -> None:
        if self._state is not _State.ENDED:
            self._state = _State.ENDED
            self._failure = failure
            self._connection.close()
            self._tell()

    def _tell(self) -> None:
        self._news.set()
        self._news = trio.Event()


async def connect_websocket(
    url: str,
    nursery: trio.Nursery,
    *,
    headers: Headers = (),
    settings: TransportSettings | None = None,
    max_message_bytes: int = MAX_MESSAGE_BYTES,
) -> WebSocket:
    """Connect to ``url`` (``http`` or ``https``) and make it a WebSocket, whose reading task runs in ``nursery``.

    ``settings.connect_seconds`` bounds the connection and, once more, the upgrade.

    **Errors**: `UsageError` for what is no URL; `ConnectFailed`, `TransportTimeout`, `PeerDropped`, `ProtocolError`,
    `LocalResourceError`; `ResponseError` when the server answers the upgrade with another status.
    """
    settings = settings or TransportSettings()
    origin, target = Origin.parse(url)
    context = (settings.ssl_context or httpx.create_ssl_context()) if origin.scheme == "https" else None
    connector = Connector(origin, settings)
    connection = await connector.connect(context, trio.CancelScope(), settings.connect_seconds)
    websocket = WebSocket(origin, connection, settings, max_message_bytes)
    ready = False
    try:
        with trio.move_on_after(settings.connect_seconds):
            await websocket.shake_hands(target.decode("ascii"), headers)
            nursery.start_soon(websocket.read_until_the_end)
            ready = True
            return websocket
    finally:
        if not ready:
            websocket.abort()
    raise TransportTimeout(f"{origin}: the WebSocket was not answered within {settings.connect_seconds:g} s")
