"""What is not plain HTTP/1.1 goes to hypercorn's own connection class: TLS, HTTP/2, WebSockets."""

from __future__ import annotations

import socket
import ssl
from typing import Any

import trio
from hypercorn.app_wrappers import ASGIWrapper
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
            await TCPServer(
                self._app,
                self._service.config,
                self._context,
                self._service.state.copy(),
                stream,
            )
        finally:
            self._sockets.discard(sock)
            sock.close()


class _Replayed(trio.abc.HalfCloseableStream):
    """A stream that first gives the bytes that somebody else has read from it already."""

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

    async def send_eof(self) -> None:
        await self._stream.send_eof()

    async def aclose(self) -> None:
        await self._stream.aclose()
