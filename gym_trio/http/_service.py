"""What all connections of one server share."""

from __future__ import annotations

import contextvars
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import attrs
import trio
from hypercorn.config import Config

from ._arrivals import Arrivals
from ._disconnect import App, Scope
from ._http1_head import HeadParser
from ._http1_response import ResponseHead, ResponseHeads
from ._idle import IdleConnections
from ._limits import ServeLimits

if TYPE_CHECKING:
    from ._connection import Connection

__all__ = ["Service", "Settings"]


def _own(config: Config, name: str, default: Any) -> Any:
    """The user's choice if there is one, else ``default``, which differs from hypercorn's for a reason given below."""
    for place in (vars(config), *(vars(cls) for cls in type(config).__mro__ if not issubclass(Config, cls))):
        if name in place:
            return place[name]
    return default


@attrs.frozen
class Settings:
    """A hypercorn `Config`, read once, with this server's defaults where its user left hypercorn's."""

    backlog: int  # 4,096: hypercorn's 100 refuses a fifth of a thousand simultaneous connects
    keep_alive_seconds: float  # 20: longer than clients', which are mostly 5 s, so that the client closes first
    requests_per_connection: float  # no limit
    startup_seconds: float  # 600: a model may have to be loaded
    grace_seconds: float  # 3, hypercorn's
    shutdown_seconds: float  # 90: more than the 60 s in which sessions drain

    @classmethod
    def of(cls, config: Config) -> Settings:
        return cls(
            backlog=_own(config, "backlog", 4096),
            keep_alive_seconds=_own(config, "keep_alive_timeout", 20.0),
            requests_per_connection=_own(config, "keep_alive_max_requests", float("inf")),
            startup_seconds=_own(config, "startup_timeout", 600.0),
            grace_seconds=_own(config, "graceful_timeout", 3.0),
            shutdown_seconds=_own(config, "shutdown_timeout", 90.0),
        )


class Service:
    """The app, its limits, and the connections that are open."""

    def __init__(self, app: App, config: Config, limits: ServeLimits, arrivals: Arrivals | None) -> None:
        self.app = app
        self.config = config
        self.limits = limits
        self.settings = Settings.of(config)
        self.arrivals = arrivals  # None: this platform cannot, and hypercorn's connection class serves
        self.context = contextvars.copy_context()  # of which each request gets a copy
        self.state: dict[str, Any] = {}  # the lifespan's; each request gets a copy
        self.heads = HeadParser(limits)
        self.response_heads = ResponseHeads()
        self.connections: set[Connection] = set()
        self.idle = IdleConnections(self.settings.keep_alive_seconds)
        self.finishing = False  # no request is read that has not begun to arrive
        self.on_request: Callable[[], None] | None = None
        self.spawn: Callable[[Connection], None] = _nowhere  # serve it in a task of its own
        self.logs_access = config.accesslog is not None or config.statsd_host is not None
        self._second = 0
        self._default_lines = b""

    def finish(self) -> None:
        """Shutdown has begun."""
        self.finishing = True
        self.idle.end_all()

    def default_lines(self) -> bytes:
        """The date, server and alt-svc lines of every response."""
        second = int(time.time())
        if second != self._second:
            self._second = second
            lines = self.config.response_headers("gym-trio")
            self._default_lines = b"".join(b"%b: %b\r\n" % line for line in lines)
        return self._default_lines

    async def log_access(self, scope: Scope, response: ResponseHead | None, since: float) -> None:
        """``response`` None: the client left, or the app failed, before it was complete."""
        summary: Any = None if response is None else {"status": response.status, "headers": response.headers()}
        request: Any = scope
        await self.config.log.access(request, summary, trio.current_time() - since)


def _nowhere(connection: Connection) -> None:
    raise RuntimeError("the server is not running")
