"""How long closes, receipts and idle sessions may last."""

from __future__ import annotations

import math
from typing import Any

import attrs

from gym_trio.errors import ConfigError


def check_seconds(key: str, value: object) -> float:
    """``value`` as a finite number of seconds that is not negative.

    **Errors**: `ConfigError` that names ``key``.
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ConfigError(f"must be a number of seconds, not {value!r}", key=key)
    if not math.isfinite(value) or value < 0:
        raise ConfigError(f"must be finite and not negative, not {value!r}", key=key)
    return float(value)


def _seconds(key: str, default: float) -> Any:
    def convert(value: object) -> float:
        return check_seconds(key, value)

    return attrs.field(default=default, converter=convert)


def _time_to_live(key: str, default: float | None) -> Any:
    def convert(value: object) -> float:
        return math.inf if value is None else check_seconds(key, value)

    return attrs.field(default=default, converter=convert)


@attrs.frozen(kw_only=True)
class SessionTimeouts:
    """A registry's bounds. A time to live of None is none: it is kept as infinity.

    **Errors**: `ConfigError` for a value that is not a finite number of seconds, or is negative.
    """

    session_close_timeout_seconds: float = _seconds("session_close_timeout_seconds", 60.0)
    session_close_retry_window_seconds: float = _seconds("session_close_retry_window_seconds", 300.0)
    idle_ttl_seconds: float = _time_to_live("idle_ttl_seconds", None)
    absolute_ttl_seconds: float = _time_to_live("absolute_ttl_seconds", None)
    minted_idle_ttl_seconds: float = _time_to_live("minted_idle_ttl_seconds", 21600.0)
    minted_absolute_ttl_seconds: float = _time_to_live("minted_absolute_ttl_seconds", None)
