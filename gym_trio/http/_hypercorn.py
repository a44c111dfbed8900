"""What is not plain HTTP/1.1 goes to hypercorn's connection class: TLS, HTTP/2, WebSockets.

Where that one lets a client that leaves, or one stream, cost what is not its own, a class derived from it does not.
"""

from __future__ import annotations

import contextlib
import functools
import socket
import ssl
from typing import Any

import h2.events
import h2.exceptions
import h11
import trio
from hypercorn.app_wrappers import ASGIWrapper
from hypercorn.events import Closed, Event, RawData
from hypercorn.protocol import ProtocolWrapper
from hypercorn.protocol.events import Body, Data, EndBody, EndData, StreamClosed
from hypercorn.protocol.events import Event as StreamEvent
from hypercorn.protocol.h2 import H2Protocol
from hypercorn.protocol.h11 import STREAM_ID, H11Protocol
from hypercorn.protocol.ws_stream import WSStream
from hypercorn.trio.tcp_server import TCPServer
from hypercorn.trio.worker_context import WorkerContext

from ._service import Service

__all__ = ["HypercornSide"]


class HypercornSide:
    """Runs hypercorn's connection class for a `Service`.

    **Cancellation**: hypercorn shields its writes, so a client that does not read would keep one from ending.
    `cut` closes the sockets, which ends every write.
    """

    def __init__(self, service: Service) -> None:
        self._service = service
        self._app: Any = ASGIWrapper(service.app)  # type: ignore[arg-type]  # it narrows the ASGI callable
        self._context: Any = WorkerContext(None)
        self._sockets: set[trio.socket.SocketType] = set()

    @property
    def connections(self) -> int:
        return len(self._sockets)

    async def finish(self) -> None:
        """Idle connections close, the others after the request at hand."""
        await self._context.terminated.set()

    def cut(self) -> None:
        for sock in self._sockets:
            sock.close()

    async def serve_tls(self, sock: socket.socket, context: ssl.SSLContext) -> None:
        stream = trio.SocketStream(trio.socket.from_stdlib_socket(sock))
        await self._serve(trio.SSLStream(stream, context, server_side=True, https_compatible=True), stream.socket)

    async def go_on(self, sock: socket.socket, already_read: bytes) -> None:
        """Serve a connection of which ``already_read`` has been taken from the socket."""
        stream = _Replayed(trio.SocketStream(trio.socket.from_stdlib_socket(sock)), already_read)
        await self._serve(stream, stream.socket)

    async def _serve(self, stream: Any, sock: trio.socket.SocketType) -> None:
        self._sockets.add(sock)
        try:
            await _TCPServer(
                self._app,
                self._service.config,
                self._context,
                self._service.state.copy(),
                stream,
            )
        finally:
            self._sockets.discard(sock)
            sock.close()


class _TCPServer(TCPServer):
    """hypercorn's connection; once it has ended, nothing in it waits for its client.

    Whoever sees the end, one task tells the streams of it: an app that does may be cancelled by what it tells.
    """

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._reading = trio.CancelScope()

    @property
    def protocol(self) -> ProtocolWrapper:
        return self._protocol

    @protocol.setter
    def protocol(self, made: ProtocolWrapper) -> None:
        # hypercorn names the classes of its parts in the middle of its methods.
        made.__class__ = _ProtocolWrapper
        made.protocol = made.protocol
        self._protocol = made

    async def protocol_send(self, event: Event) -> None:
        if isinstance(event, RawData):
            async with self.send_lock:
                try:
                    with trio.CancelScope(shield=True):
                        await self.stream.send_all(event.data)
                except (trio.BrokenResourceError, trio.ClosedResourceError):
                    self._reading.cancel()
        elif isinstance(event, Closed):
            self._reading.cancel()
            await self._close()
        elif not self._reading.cancel_called:  # else it would wait for the next request
            await super().protocol_send(event)

    async def _read_data(self) -> None:
        with self._reading:
            await super()._read_data()
        self._reading.cancel()
        await self.protocol.handle(Closed())
        await self.idle_task.stop()

    async def _initiate_server_close(self) -> None:
        self._reading.cancel()
        await self.stream.aclose()


class _ProtocolWrapper(ProtocolWrapper):
    @property
    def protocol(self) -> Any:
        return vars(self)["protocol"]  # as it was made

    @protocol.setter
    def protocol(self, made: Any) -> None:
        made.__class__ = {H11Protocol: _H11Protocol, H2Protocol: _H2Protocol}.get(type(made), type(made))
        vars(self)["protocol"] = made


class _H11Protocol(H11Protocol):
    async def _close_stream(self) -> None:
        if self.stream is not None:
            stream, self.stream = self.stream, None
            # In a task of its own, for this one may be cancelled before the app is told.
            self.task_group.spawn(stream.handle, StreamClosed(stream_id=STREAM_ID))

    async def _create_stream(self, request: h11.Request) -> None:
        await super()._create_stream(request)
        if isinstance(self.stream, WSStream):
            self.stream.__class__ = _WSStream


class _WSStream(WSStream):
    async def handle(self, event: StreamEvent) -> None:
        if isinstance(event, Body | Data) and not (self.handshake.accepted or self.closed):
            # Before the upgrade was answered it means nothing. The app is told as of a client that has gone.
            event = StreamClosed(stream_id=self.stream_id)
            await super().handle(event)
            await self.send(event)
        else:
            await super().handle(event)


class _H2Protocol(H2Protocol):
    """HTTP/2, where what becomes of one stream costs no other."""

    async def handle(self, event: Event) -> None:
        if isinstance(event, Closed):
            for buffer in list(self.stream_buffers.values()):
                await buffer.close()  # nobody sends what is in it, or tells who waits for that
        await super().handle(event)
        if self.closed:
            self._sent.unpark_all()

    @functools.cached_property
    def _sent(self) -> trio.lowlevel.ParkingLot:
        return trio.lowlevel.ParkingLot()

    async def _send_data(self, stream_id: int) -> None:
        await super()._send_data(stream_id)
        self._sent.unpark_all()

    async def stream_send(self, event: StreamEvent) -> None:
        await super().stream_send(event)
        if isinstance(event, EndBody | EndData):
            # Its last bytes have been sent, and not yet that they are the last; in a shutdown the connection ends next.
            while event.stream_id in self.stream_buffers and not self.closed:
                await self._sent.park()

    async def _close_stream(self, stream_id: int) -> None:
        if stream_id in self.streams:
            self.task_group.spawn(self.streams.pop(stream_id).handle, StreamClosed(stream_id=stream_id))
            await self.has_data.set()

    async def _handle_events(self, events: list[h2.events.Event]) -> None:
        for event in events:
            if self.closed:  # a request would not be told that its client has gone
                return
            if isinstance(event, h2.events.DataReceived) and event.stream_id not in self.streams:
                # The response was complete before the request, or the stream was reset.
                self.connection.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
                await self._flush()
                continue
            with contextlib.suppress(h2.exceptions.ProtocolError):  # what it is about has ended meanwhile
                await super()._handle_events([event])


class _Replayed(trio.abc.Stream):
    """A stream that first gives the bytes that somebody else has read from it already.

    It has no ``send_eof``, which hypercorn would call beside another task's sending, and just before it closes.
    """

    def __init__(self, stream: trio.SocketStream, already_read: bytes) -> None:
        self._stream = stream
        self._already_read = already_read
        self.socket = stream.socket

    async def receive_some(self, max_bytes: int | None = None) -> bytes | bytearray:
        if self._already_read:
            await trio.lowlevel.checkpoint()
            size = max_bytes or len(self._already_read)
            data, self._already_read = self._already_read[:size], self._already_read[size:]
            return data
        return await self._stream.receive_some(max_bytes)

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        await self._stream.send_all(data)

    async def wait_send_all_might_not_block(self) -> None:
        await self._stream.wait_send_all_might_not_block()

    async def aclose(self) -> None:
        await self._stream.aclose()
