"""A response that closes its connection costs that connection, and nothing else."""

from __future__ import annotations

import pytest
import trio

from gym_trio.http import ServerClient, open_socket_transport

CLOSING = [
    b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nok",
    b"HTTP/1.0 200 OK\r\ncontent-length: 2\r\n\r\nok",
    b"HTTP/1.1 200 OK\r\nconnection: close\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
    b"HTTP/1.1 200 OK\r\n\r\nok",
    b"HTTP/1.1 204 No Content\r\nconnection: close\r\n\r\n",
]


@pytest.mark.parametrize("answer", CLOSING)
async def test_the_next_request_after_a_closing_response_succeeds(answer: bytes) -> None:
    """Whatever way a response closes its connection, later requests are read as if it had not been."""

    async def handle(stream: trio.SocketStream) -> None:
        async with stream:
            received = b""
            while b"\r\n\r\n" not in received:
                received += await stream.receive_some()
            await stream.send_all(answer)

    async with trio.open_nursery() as nursery, open_socket_transport() as transport:
        listeners = await nursery.start(trio.serve_tcp, handle, 0)
        port = listeners[0].socket.getsockname()[1]
        client = ServerClient({"peer": (transport, f"http://127.0.0.1:{port}")})
        for _ in range(5):
            response = await client.get("peer", "/")
            assert response.body == (b"" if response.status == 204 else b"ok")
        nursery.cancel_scope.cancel()
