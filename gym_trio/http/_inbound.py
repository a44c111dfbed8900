"""`Inbound`: requests as they arrive on one connection."""

from __future__ import annotations

import trio

from ._http1_grammar import BadRequest
from ._http1_head import RequestHead
from ._http1_parser import RequestReader
from ._service import Service
from ._wire import ClientGone, TooSlow, Wire

__all__ = ["Inbound"]

_BODY_PIECE_BYTES = 256 * 1024


class Inbound:
    """Feeds a `RequestReader` from a `Wire`, within the limits on idleness, heads and bodies.

    **Errors**: `BadRequest` for what the reader refuses, and for what does not arrive in time.
    """

    def __init__(self, service: Service, wire: Wire) -> None:
        self.reader = RequestReader(service.limits, service.heads)
        self._service = service
        self._wire = wire

    async def next_head(self) -> RequestHead | None:
        """None when there is none, because the client has gone, was idle for too long, or the server shuts down."""
        reader = self.reader
        is_begun = reader.holds_bytes
        if is_begun:
            head = reader.next_head()
            if head is not None:
                await trio.lowlevel.checkpoint()  # so that a client that pipelines leaves others their turn
                return head
            is_begun = reader.holds_bytes  # not if they were stray line ends
        if not is_begun and not await self._first_bytes():
            return None
        return reader.next_head() or await self._rest_of_head()

    async def _first_bytes(self) -> bool:
        """Feed the beginning of the next request; whether one came in time."""
        if self._service.finishing:
            return False
        idle, wire = self._service.idle, self._wire
        idle.add(wire)
        try:
            data = None
            while data is None:
                await wire.wait_for_input()
                data = wire.receive()
                if data is None and wire not in idle:
                    return False  # the wait was over in the moment of a false alarm
        except trio.ClosedResourceError:
            return False
        finally:
            idle.remove(wire)
        self.reader.feed(data)
        return bool(data)

    async def _rest_of_head(self) -> RequestHead | None:
        deadline = trio.current_time() + self._service.limits.head_seconds
        head = None
        while head is None:
            try:
                data = await self._wire.read_until(deadline)
            except TooSlow:
                raise BadRequest(408, "the head did not arrive in time") from None
            if not data:
                return None
            self.reader.feed(data)
            head = self.reader.next_head()
        return head

    def arrived_body(self) -> bytes:
        """What is there of the body of a request whose head has been read."""
        self._wire.renew_allowances()
        return self.reader.body()

    async def buffered_body(self, begun: bytes) -> bytes:
        """All of a small body, the beginning of a large one, of which ``begun`` has arrived.

        **Errors**: `ClientGone` when the client leaves meanwhile.
        """
        reader = self.reader
        pieces = [begun]
        size = len(begun)
        while not reader.body_complete and size < self._service.limits.buffered_body_bytes:
            pieces.append(await self.body_piece())
            size += len(pieces[-1])
        return b"".join(pieces)

    async def body_piece(self) -> bytes:
        """Wait for more of the body; ``b""`` only at its end.

        **Errors**: `ClientGone` when the client leaves meanwhile.
        """
        reader = self.reader
        piece = reader.body()
        while not piece and not reader.body_complete:
            try:
                data = await self._wire.read_body(_BODY_PIECE_BYTES)
            except TooSlow:
                raise BadRequest(408, "the body did not arrive in time") from None
            if not data:
                raise ClientGone("the client left before its request was complete")
            reader.feed(data)
            piece = reader.body()
        return piece
