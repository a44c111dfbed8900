"""The partner of servers: ``--connections`` that each send their next POST when they have the answer to the last."""

from __future__ import annotations

import asyncio
import json
from urllib.parse import urlsplit

from _side import BODY, Digest, options, report

PAYLOAD = json.dumps(BODY).encode()
REQUEST = (
    b"POST /echo HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nAccept: */*\r\n"
    b"User-Agent: load\r\nContent-Length: %d\r\n\r\n" % len(PAYLOAD) + PAYLOAD
)


class Load:
    def __init__(self, count):
        self.left = count
        self.done = self.good = 0
        self.bodies = Digest()
        self.over = asyncio.get_running_loop().create_future()
        self.open = 0


class Connection(asyncio.Protocol):
    def __init__(self, load):
        self.load = load
        self.buffer = b""

    def connection_made(self, transport):
        self.transport = transport
        self.load.open += 1
        self.send()

    def connection_lost(self, error):
        self.load.open -= 1
        if not self.load.open and not self.load.over.done():
            self.load.over.set_result(None)

    def send(self):
        if not self.load.left:
            self.transport.close()
            return
        self.load.left -= 1
        self.transport.write(REQUEST)

    def data_received(self, data):
        self.buffer += data
        head, found, body = self.buffer.partition(b"\r\n\r\n")
        if not found:
            return
        length = int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0])
        if len(body) < length:
            return
        self.buffer = b""
        self.load.done += 1
        self.load.good += head.startswith(b"HTTP/1.1 200")
        self.load.bodies.add(json.dumps(json.loads(body), sort_keys=True).encode())
        self.send()


async def main(arguments):
    place = urlsplit(arguments.url)
    load = Load(max(arguments.connections, arguments.requests // (4 if arguments.warm else 1)))
    for _ in range(arguments.connections):
        await asyncio.get_running_loop().create_connection(lambda: Connection(load), place.hostname, place.port)
    await load.over
    report({"requests": load.done, "ok": load.good, "bodies": str(load.bodies)})


asyncio.run(main(options(url="", connections=64, requests=4096, warm=False)))
