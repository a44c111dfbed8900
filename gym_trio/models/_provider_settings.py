"""`ProviderSettings`: where a model is and how it may be called."""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from ._retry import RetrySettings
from ._routing import Routing

__all__ = ["ProviderSettings"]


@attrs.frozen
class ProviderSettings:
    """Where a model is and how it may be called.

    ``attempt_seconds`` bounds one attempt, its whole answer included; ``idle_seconds`` the silence inside a stream.
    The limits hold for each of ``base_urls``.
    """

    base_urls: tuple[str, ...]
    api_key: str | None = None
    extra_headers: Mapping[str, str] = attrs.Factory(dict)
    routing: Routing = "sticky"
    max_concurrent_requests: int | None = None
    requests_per_minute: float | None = None
    retry: RetrySettings = attrs.Factory(RetrySettings)
    attempt_seconds: float = 3600
    idle_seconds: float = 600
