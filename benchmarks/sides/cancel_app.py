"""An app whose handlers never answer and count themselves."""

from __future__ import annotations

import trio


class Parking:
    """Handlers wait for ever; ``arrived`` and ``left`` count them."""

    def __init__(self):
        self.arrived = self.left = 0
        self._changed = trio.Event()

    async def __call__(self, scope, receive, send):
        if scope["type"] == "lifespan":
            await receive()
            await send({"type": "lifespan.startup.complete"})
            await receive()
            await send({"type": "lifespan.shutdown.complete"})
            return
        while (await receive()).get("more_body"):
            pass
        self.arrived += 1
        self._tell()
        try:
            await trio.sleep_forever()
        finally:
            self.left += 1
            self._tell()

    def _tell(self):
        self._changed.set()
        self._changed = trio.Event()

    async def until(self, condition):
        while not condition():
            await self._changed.wait()
