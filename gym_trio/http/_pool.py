"""The connections of one origin: found, handed over and freed in constant time. All decisions are synchronous."""

from __future__ import annotations

from collections import OrderedDict, deque

import outcome
import trio

from ..errors import Delivery, TransportError, TransportTimeout
from ._connect_pace import ConnectPace
from ._origin_connection import Connection

__all__ = ["OriginPool", "PoolTimeout", "closed_error"]


class PoolTimeout(TransportTimeout):
    """No connection was free in time. Only users of httpx set such a bound."""


class OriginPool:
    """Idle connections (last in, first out) and the tasks that wait for one (first in, first out).

    A task that waits gets a connection that another one has released, or the permission to make one, as `ConnectPace`
    gives them out. While a task waits nothing is idle.
    """

    def __init__(self, keepalive_seconds: float, limit: int | None, max_concurrent_connects: int) -> None:
        self.connections: set[Connection] = set()  # open ones, idle or in use
        self._permits: set[trio.CancelScope] = set()  # given out, not yet returned
        self.failure_logged = False  # since a connection was last made
        self._idle: deque[Connection] = deque()  # the one released last on the right
        self._waiting: OrderedDict[trio.lowlevel.Task, None] = OrderedDict()
        self._keepalive_seconds = keepalive_seconds
        self._limit = limit
        self._pace = ConnectPace(max_concurrent_connects)
        self._closed = False

    @property
    def idle(self) -> int:
        return len(self._idle)

    @property
    def connecting(self) -> int:
        return len(self._permits)

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    def take_idle(self) -> Connection | None:
        """The connection released last that is still alive."""
        while self._idle:
            connection = self._idle.pop()
            if connection.idle_until > trio.current_time() and connection.seems_alive():
                return connection
            self.discard(connection)
        return None

    async def acquire(self) -> Connection | trio.CancelScope:
        """A connection, or the permission to make one: a scope to connect in, given to `connected` or `connect_failed`.

        **Cancellation**: nothing is held by a cancelled call.
        """
        connection = self.take_idle()
        if connection is not None:
            return connection
        if self._closed:
            raise closed_error()
        if not self._waiting and self._may_connect():
            return self._permit()
        task = trio.lowlevel.current_task()
        self._waiting[task] = None
        got: Connection | trio.CancelScope = await trio.lowlevel.wait_task_rescheduled(_Withdrawal(self._waiting, task))
        if isinstance(got, Connection) and not got.seems_alive():
            # Its place becomes the permission to make another: nobody else's turn has come.
            got.close()
            self.connections.discard(got)
            return self._permit()
        return got

    def _permit(self) -> trio.CancelScope:
        scope = trio.CancelScope()
        self._permits.add(scope)
        self._pace.connect_begins(scope, len(self._waiting))
        return scope

    def _may_connect(self) -> bool:
        if self.connecting >= self._pace.allowed:
            return False
        return self._limit is None or len(self.connections) + self.connecting < self._limit

    def _give_permissions(self) -> None:
        while self._waiting and self._may_connect():
            task, _ = self._waiting.popitem(last=False)
            trio.lowlevel.reschedule(task, outcome.Value(self._permit()))

    def connected(self, permit: trio.CancelScope, connection: Connection) -> None:
        """**Errors**: `TransportError` when the pool was closed meanwhile; the connection is closed too."""
        self._permits.discard(permit)
        self._pace.connect_ended(permit, far=connection.is_far)
        if self._closed:
            connection.close()
            raise closed_error()
        self.failure_logged = False
        self.connections.add(connection)
        self._give_permissions()

    def connect_failed(self, permit: trio.CancelScope) -> None:
        self._permits.discard(permit)
        self._pace.connect_ended(permit, far=None)
        self._give_permissions()

    def release(self, connection: Connection) -> None:
        """Take back a connection whose exchange is complete."""
        if self._closed:
            self.discard(connection)
        elif self._waiting:
            task, _ = self._waiting.popitem(last=False)
            self._pace.reused()
            trio.lowlevel.reschedule(task, outcome.Value(connection))
        else:
            connection.idle_until = trio.current_time() + self._keepalive_seconds
            self._idle.append(connection)
            self.expire()

    def discard(self, connection: Connection, *, waited_for: bool = False, resets: bool = False) -> None:
        """`Connection.close` it at once and free its place. Idempotent."""
        connection.close(waited_for=waited_for, resets=resets)
        self.connections.discard(connection)
        self._give_permissions()

    def expire(self) -> float:
        """Close what has been idle too long. The time at which the next one will have been; infinity if none is."""
        now = trio.current_time()
        while self._idle and self._idle[0].idle_until <= now:
            self.discard(self._idle.popleft())
        return self._idle[0].idle_until if self._idle else float("inf")

    def close(self) -> None:
        """Close every connection; whoever waits, connects or reads gets an error."""
        self._closed = True
        self._idle.clear()
        while self._waiting:
            task, _ = self._waiting.popitem(last=False)
            trio.lowlevel.reschedule(task, outcome.Error(closed_error()))
        for permit in self._permits:
            permit.cancel()
        for connection in self.connections:
            connection.close()
        self.connections.clear()


class _Withdrawal:
    """Ends a wait that is cancelled. One object, where a function inside a function is five; thousands may wait."""

    __slots__ = ("_task", "_waiting")

    def __init__(self, waiting: OrderedDict[trio.lowlevel.Task, None], task: trio.lowlevel.Task) -> None:
        self._waiting = waiting
        self._task = task

    def __call__(self, _: object) -> trio.lowlevel.Abort:
        del self._waiting[self._task]
        return trio.lowlevel.Abort.SUCCEEDED


def closed_error() -> TransportError:
    return TransportError("the transport is closed", delivery=Delivery.NOT_SENT)
