"""`TransportSettings`: the bounds of the socket transport."""

from __future__ import annotations

import ssl

import attrs

from ._retry import RetryPolicy

__all__ = ["TransportSettings"]


@attrs.frozen
class TransportSettings:
    """Bounds and options of a socket transport. How long a server may think is bounded by the caller alone."""

    connect_seconds: float = 30.0  # one attempt: name lookup, TCP and TLS handshake
    write_seconds: float = 60.0  # without a byte of the request being taken
    keepalive_seconds: float = 4.0  # an idle connection is kept this long; servers usually give it 5
    connect_retry: RetryPolicy = attrs.Factory(RetryPolicy)
    max_connections_per_origin: int | None = None  # None: as many as there are requests
    max_concurrent_connects: int = 128  # per origin; an unpaced burst overflows the server's backlog
    max_head_bytes: int = 64 * 1024
    max_body_bytes: int = 64 * 1024 * 1024  # of a response read whole; a streamed one has no bound
    tcp_keepalive_idle_seconds: int = 60  # silence until the first probe
    tcp_keepalive_interval_seconds: int = 15  # between probes
    tcp_keepalive_probes: int = 8  # unanswered ones after which the connection is dead
    ssl_context: ssl.SSLContext | None = None  # None: httpx's default, made at the first https request
