"""`TransportSettings`: the bounds of the socket transport."""

from __future__ import annotations

import math
import ssl

import attrs

from ._retry import RetryPolicy
from ._validators import at_least_one, none_or_one, not_negative

__all__ = ["Bounds", "TransportSettings"]


@attrs.frozen
class TransportSettings:
    """Bounds and options of a socket transport. How long a server may think is bounded by the caller alone."""

    connect_seconds: float = attrs.field(default=30.0, validator=not_negative)
    """One attempt: name lookup, TCP and TLS handshake."""
    write_seconds: float = attrs.field(default=60.0, validator=not_negative)
    """Without a byte of the request being taken."""
    keepalive_seconds: float = attrs.field(default=4.0, validator=not_negative)
    """An idle connection is kept this long; servers usually keep it for 5, and must be the slower to give up."""
    connect_retry: RetryPolicy = attrs.Factory(RetryPolicy)
    """For what failed before a byte was handed over; an attempt that ran into ``connect_seconds`` is the last."""
    max_connections_per_origin: int | None = attrs.field(default=None, validator=none_or_one)
    """None: as many as there are requests."""
    max_concurrent_connects: int = attrs.field(default=128, validator=at_least_one)
    """Per origin: an unpaced burst overflows a server's backlog. To a server on this machine a few are made at once
    while used ones come free about as quickly for the requests that wait."""
    max_head_bytes: int = attrs.field(default=64 * 1024, validator=at_least_one)
    max_body_bytes: int = attrs.field(default=64 * 1024 * 1024, validator=at_least_one)
    """Of a response that is read whole; a streamed one has no bound."""
    tcp_keepalive_idle_seconds: int = attrs.field(default=60, validator=at_least_one)
    """Silence until the first probe. A server that is silent and alive answers probes, however long it thinks."""
    tcp_keepalive_interval_seconds: int = attrs.field(default=15, validator=at_least_one)
    tcp_keepalive_probes: int = attrs.field(default=8, validator=at_least_one)
    ssl_context: ssl.SSLContext | None = None
    """None: httpx's default, made at the first https request."""

    @property
    def dead_peer_seconds(self) -> int:
        """After how long a peer that no longer answers on the TCP level is given up."""
        return self.tcp_keepalive_idle_seconds + self.tcp_keepalive_interval_seconds * self.tcp_keepalive_probes


@attrs.frozen
class Bounds:
    """The bounds of one request, in seconds."""

    connect: float
    write: float  # without progress
    pool: float = math.inf  # waiting for a connection or for the permission to make one
    read: float = math.inf  # without progress
