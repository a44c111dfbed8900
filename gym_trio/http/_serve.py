"""`serve`: an ASGI app on hypercorn's configuration and sockets, with our own connections."""

from __future__ import annotations

import logging
import socket
from collections.abc import Awaitable, Callable, Iterable
from random import randint

import trio
from hypercorn.config import Config, Sockets
from hypercorn.trio.statsd import StatsdLogger

from ._accept import Admission, accept_connections, open_listeners, shown_address
from ._arrivals import open_arrivals
from ._disconnect import App
from ._hypercorn import HypercornSide
from ._lifespan import open_lifespan
from ._limits import ServeLimits
from ._service import Service

__all__ = ["default_config", "serve"]


async def serve(
    app: App,
    config: Config | None = None,
    *,
    sockets: Sockets | Iterable[socket.socket] | None = None,
    limits: ServeLimits | None = None,
    shutdown_trigger: Callable[[], Awaitable[object]] | None = None,
    task_status: trio.TaskStatus[list[str]] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve ``app`` until ``shutdown_trigger`` returns, or the caller is cancelled.

    ``config`` is hypercorn's; where it is left at hypercorn's defaults, ours apply to the backlog, keep-alive, startup
    and shutdown bounds. ``sockets`` are bound already: hypercorn's `Sockets`, or plain ones for HTTP without TLS; an
    inherited descriptor can also be named in the configuration, as ``bind = "fd://3"``. ``task_status.started`` gets
    the URLs, once the app has started and connections are accepted.

    Plain HTTP/1.1 is served by our own connections; TLS, HTTP/2 and WebSockets by hypercorn's.

    **Cancellation**: starts the same shutdown as the trigger, which is: no more connections are accepted, idle ones
    close, requests at hand get ``graceful_timeout`` and then are cancelled, and the app's lifespan shutdown gets
    ``shutdown_timeout``. A second cancellation changes nothing. Cancelled before the app has started, it ends at once.

    **Errors**: `ServerStartError` when the lifespan's startup fails; `GymError` when its shutdown fails or is cut;
    `OSError` when an address cannot be bound. What handlers raise is logged.

    **Ownership**: the listening sockets are closed when shutdown begins, also those that were handed in.
    """
    server = _Server(app, config or default_config(), limits or ServeLimits())
    failure: BaseException | None = None
    try:
        async with trio.open_nursery() as nursery:
            # The server's task does not see the caller's cancellation; this one does, and passes it on as a wish.
            nursery.start_soon(server.run, sockets, nursery.cancel_scope, task_status)
            try:
                await (shutdown_trigger or trio.sleep_forever)()
            except trio.Cancelled:
                server.give_up_starting()
                raise
            finally:
                server.finish()
    except BaseExceptionGroup as group:
        # The nursery's wrapping is nobody's concern outside.
        if len(group.exceptions) > 1:
            raise
        failure = group.exceptions[0]
    if failure is not None:
        raise failure


def default_config() -> Config:
    """What `serve` and `open_server` use without a configuration: hypercorn's, logging to ``gym_trio.http``."""
    config = Config()
    config.errorlog = logging.getLogger("gym_trio.http")
    return config


class _Server:
    """One run of `serve`: what is open, and the order in which it closes."""

    def __init__(self, app: App, config: Config, limits: ServeLimits) -> None:
        config.set_statsd_logger_class(StatsdLogger)
        self._app = app
        self._config = config
        self._limits = limits
        self._life = trio.CancelScope(shield=True)
        self._starting = True  # the app's startup has not ended
        self._finish = trio.Event()

    def finish(self) -> None:
        """Shut down in order, once the app has started."""
        self._finish.set()

    def give_up_starting(self) -> None:
        """Do not wait for the app to start."""
        if self._starting:
            self._life.cancel()

    async def run(
        self,
        given: Sockets | Iterable[socket.socket] | None,
        outside: trio.CancelScope,
        task_status: trio.TaskStatus[list[str]],
    ) -> None:
        """Each line in is opened after, and closed before, the line above it."""
        with open_listeners(self._config, given) as sockets, self._life, open_arrivals() as arrivals:
            service = Service(self._app, self._config, self._limits, arrivals)
            async with open_lifespan(
                self._app,
                server=" ".join(_names(sockets)),
                startup_bound_seconds=service.settings.startup_seconds,
                shutdown_bound_seconds=service.settings.shutdown_seconds,
            ) as service.state:
                self._starting = False
                async with trio.open_nursery() as watching:
                    await self._serve_connections(service, sockets, watching, task_status)
                    watching.cancel_scope.cancel()
        outside.cancel()  # the server may have ended by itself

    async def _serve_connections(
        self,
        service: Service,
        sockets: Sockets,
        watching: trio.Nursery,
        task_status: trio.TaskStatus[list[str]],
    ) -> None:
        if service.arrivals is not None:
            watching.start_soon(service.arrivals.run)
            watching.start_soon(service.idle.run)
        hypercorn = HypercornSide(service)
        self._count_requests(service)
        async with trio.open_nursery() as connections:
            admission = Admission(service, hypercorn, connections, self._config.create_ssl_context())
            service.spawn = admission.serve
            async with trio.open_nursery() as accepting:
                for secure, some in ((True, sockets.secure_sockets), (False, sockets.insecure_sockets)):
                    for sock in some:
                        sock.listen(service.settings.backlog)
                        accepting.start_soon(accept_connections, sock, admission, secure)
                for name in _names(sockets):
                    await self._config.log.info("Running on %s", name)
                task_status.started(_names(sockets))
                await self._finish.wait()
                accepting.cancel_scope.cancel()
            for sock in sockets.secure_sockets + sockets.insecure_sockets:
                sock.close()
            cut_time = trio.current_time() + service.settings.grace_seconds
            connections.cancel_scope.deadline = cut_time
            watching.start_soon(_cut_at, cut_time, hypercorn)
            service.finish()
            await hypercorn.finish()

    def _count_requests(self, service: Service) -> None:
        """``max_requests``: the server ends after so many, as hypercorn's worker would."""
        if self._config.max_requests is None:
            return
        left = self._config.max_requests + randint(0, self._config.max_requests_jitter)

        def count() -> None:
            nonlocal left
            left -= 1
            if left < 0:
                service.finish()  # so that the response at hand is the last
                self.finish()

        service.on_request = count


def _names(sockets: Sockets) -> list[str]:
    return [shown_address("https", sock) for sock in sockets.secure_sockets] + [
        shown_address("http", sock) for sock in sockets.insecure_sockets
    ]


async def _cut_at(cut_time: float, hypercorn: HypercornSide) -> None:
    await trio.sleep_until(cut_time)
    hypercorn.cut()
