"""The partner of clients: answers each POST with its own body. asyncio, no framework.

After ``--hold`` seconds; or when ``--together`` of them are there, so that exactly so many are in flight.
"""

from __future__ import annotations

import asyncio
import json
import socket

from _side import options, raise_file_limit


class Together:
    """Answers are written when there are ``count``."""

    def __init__(self, count):
        self._count = count
        self._answers = []

    def add(self, transport, answer):
        self._answers.append((transport, answer))
        if len(self._answers) == self._count:
            answers, self._answers = self._answers, []
            for waiting, complete in answers:
                waiting.write(complete)


class Echo(asyncio.Protocol):
    hold = 0.0
    together = None

    def __init__(self):
        self.buffer = b""

    def connection_made(self, transport):
        self.transport = transport

    def data_received(self, data):
        self.buffer += data
        while True:
            head, found, rest = self.buffer.partition(b"\r\n\r\n")
            if not found:
                return
            length = int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0])
            if len(rest) < length:
                return
            body, self.buffer = rest[:length], rest[length:]
            answer = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % length + body
            if self.together:
                self.together.add(self.transport, answer)
            elif self.hold:
                asyncio.get_running_loop().call_later(self.hold, self.transport.write, answer)
            else:
                self.transport.write(answer)


async def main(arguments):
    raise_file_limit()
    Echo.hold = arguments.hold
    if arguments.together:
        Echo.together = Together(arguments.together)
    listener = socket.create_server(("127.0.0.1", 0), backlog=16384)
    server = await asyncio.get_running_loop().create_server(Echo, sock=listener, backlog=16384)
    print(json.dumps({"url": f"http://127.0.0.1:{listener.getsockname()[1]}"}), flush=True)
    await server.serve_forever()


asyncio.run(main(options(hold=0.0, together=0)))
