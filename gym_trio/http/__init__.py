"""HTTP between rollouts, agents and environments.

================  =====================================================================================
serving           `serve` (until told to end), `open_server` (for the length of a block), `ServeLimits`
disconnects       `CancelOnDisconnect`
asking            `ServerClient` (by name), `Request`, `Response`, `StreamedResponse`, `Origin`
transports        `Transport`, `open_socket_transport`, `SocketTransport`, `TransportSettings`, `RetryPolicy`
in memory         `MemoryTransport`, `begin_work`, `open_lifespan`, `DirectApp`, `DirectRoute`, `Answer`
messages          `WebSocket`, made by `connect_websocket`
================  =====================================================================================

What stands on hypercorn is imported when it is first used, so that a client does not pay for a server.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from ._client import ServerClient as ServerClient
from ._direct import Answer as Answer
from ._direct import DirectApp as DirectApp
from ._direct import DirectRoute as DirectRoute
from ._disconnect import CancelOnDisconnect as CancelOnDisconnect
from ._lifespan import open_lifespan as open_lifespan
from ._memory import MemoryTransport as MemoryTransport
from ._memory import begin_work as begin_work
from ._message import Origin as Origin
from ._message import Request as Request
from ._message import Response as Response
from ._message import StreamedResponse as StreamedResponse
from ._message import Transport as Transport
from ._retry import RetryPolicy as RetryPolicy
from ._settings import TransportSettings as TransportSettings
from ._socket_transport import SocketTransport as SocketTransport
from ._socket_transport import open_socket_transport as open_socket_transport

if TYPE_CHECKING:
    from ._limits import ServeLimits as ServeLimits
    from ._open_server import ServedApp as ServedApp
    from ._open_server import open_server as open_server
    from ._serve import serve as serve
    from ._websocket import WebSocket as WebSocket
    from ._websocket import connect_websocket as connect_websocket

_LAZY = {
    "ServeLimits": "_limits",
    "ServedApp": "_open_server",
    "WebSocket": "_websocket",
    "connect_websocket": "_websocket",
    "open_server": "_open_server",
    "serve": "_serve",
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'gym_trio.http' has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_LAZY[name]}"), name)
