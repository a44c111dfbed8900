"""What a server puts up with: sizes, counts and rates."""

from __future__ import annotations

import attrs

__all__ = ["Allowance", "ServeLimits"]


_SIZE = attrs.validators.gt(0)
_DURATION = attrs.validators.gt(0.0)


@attrs.frozen(kw_only=True)
class ServeLimits:
    """Bounds on what one client can make a server hold, and for how long.

    What exceeds a size gets a 4xx and a closed connection. What exceeds a time is closed: with a 408 while a request is
    on its way, without a word otherwise.

    Keep-alive, backlog, grace and shutdown bounds are hypercorn's and stand in its `Config`.
    """

    head_bytes: int = attrs.field(default=64 * 1024, validator=_SIZE)  # request line and headers; also trailers
    header_count: int = attrs.field(default=256, validator=_SIZE)
    body_bytes: int = attrs.field(default=64 * 1024 * 1024, validator=_SIZE)
    buffered_body_bytes: int = attrs.field(default=1024 * 1024, validator=_SIZE)
    """A body up to this size has arrived before its handler starts; of a larger one this much, the rest on demand."""
    head_seconds: float = attrs.field(default=20.0, validator=_DURATION)  # from a head's first byte to its last
    transfer_seconds: float = attrs.field(default=60.0, validator=_DURATION)
    min_bytes_per_second: float = attrs.field(default=500.0, validator=_DURATION)
    """A body in either direction may keep the server waiting ``transfer_seconds`` and one second more for every
    ``min_bytes_per_second`` that moved; no single wait is longer than ``transfer_seconds``."""
    linger_seconds: float = attrs.field(default=2.0, validator=_DURATION)
    """How long what a refused client still sends is read and dropped, so that it gets to see the refusal."""
    connections: int | None = attrs.field(default=None, validator=attrs.validators.optional(_SIZE))
    """Past them a connection gets a 503 and is closed. None: as many as there are file descriptors."""


class Allowance:
    """How long one body may still keep the server waiting. Only time spent waiting for the peer counts."""

    __slots__ = ("_left_seconds", "_longest_seconds", "_rate")

    def __init__(self, limits: ServeLimits) -> None:
        self._longest_seconds = limits.transfer_seconds
        self._left_seconds = limits.transfer_seconds
        self._rate = limits.min_bytes_per_second

    def seconds(self) -> float:
        """The longest that the next wait may take."""
        return min(self._left_seconds, self._longest_seconds)

    def spend(self, waited_seconds: float, moved_bytes: int) -> None:
        self._left_seconds += moved_bytes / self._rate - waited_seconds
