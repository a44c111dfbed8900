"""Waiting for input on many sockets: one epoll set inside trio's own, and nothing that a wait adds to it."""

from __future__ import annotations

import collections
import contextlib
import select
from collections.abc import Awaitable, Callable, Iterator

import outcome
import trio

__all__ = ["Arrivals", "Inlet", "open_arrivals"]

_TOLD_AT_ONCE = 1024  # sockets, by the kernel; of the others it tells when asked again


class Inlet:
    """The side of a socket on which input comes, and the task that waits for it. A base class of what has the socket.

    A wait is a place to park the task: `trio.lowlevel.wait_readable` is one too, but makes a dozen objects and asks
    the kernel twice, for each wait anew. Thousands wait at once here, for minutes.

    **Cancellation**: ends a wait; what has come stays unread.

    **Errors**: `trio.BusyResourceError` for a second task; `trio.ClosedResourceError` after `stop_waiting`.

    **Ownership**: whoever reads the socket calls `before_read` first. The kernel tells of input once, as it comes: a
    flag that is taken down only then can miss none of it.
    """

    __slots__ = ("_looks", "_task", "has_ended", "on_end")

    def __init__(self, on_end: Callable[[], None] | None = None) -> None:
        self.on_end = on_end  # called once, when no more will come; of what has come, none need have been read
        self._task: trio.lowlevel.Task | None = None  # that waits
        self._looks = 0  # so many reads may find something yet
        self.has_ended = False  # no more will come; what is there, and the end, can be read at any time

    def wait_for_input(self) -> Awaitable[object]:
        """Until there is input, or its end, to be read. It may be a false alarm."""
        if self._task is not None:
            raise trio.BusyResourceError("another task waits for the input of this socket")
        if self._looks:
            return trio.lowlevel.checkpoint()  # noqa: ASYNC105  by the caller
        self._task = trio.lowlevel.current_task()
        return trio.lowlevel.wait_task_rescheduled(self)  # noqa: ASYNC105  by the caller

    def __call__(self, _: object) -> trio.lowlevel.Abort:
        """The wait is cancelled. A method would be one object more for each that waits."""
        self._task = None
        return trio.lowlevel.Abort.SUCCEEDED

    def before_read(self) -> None:
        self._looks = self._looks - 1 if self._looks > 1 else int(self.has_ended)

    def after_full_read(self) -> None:
        """As much was read as was asked for: there may be more."""
        self._looks += 1

    def stop_waiting(self) -> None:
        """End the wait, if there is one, with `trio.ClosedResourceError`. One that has been woken by input goes on."""
        task, self._task = self._task, None
        if task is not None:
            trio.lowlevel.reschedule(task, outcome.Error(trio.ClosedResourceError("the socket was closed meanwhile")))

    def arrived(self, *, ends: bool = False, urgent: bool = False) -> bool:
        """Called by `Arrivals`. Whether there is a task to `wake`.

        ``ends``: no more will come; ``urgent``: a read ends before it.
        """
        if urgent:
            self._looks = 2
        elif not self._looks:
            self._looks = 1
        elif not ends:
            return False  # it has been told before, and nobody has looked since
        if ends and not self.has_ended:
            self.has_ended = True
            if self.on_end is not None:
                self.on_end()
        return self._task is not None

    def wake(self) -> None:
        """Resume the task that waits, unless what it waits for has been read by another meanwhile."""
        if self._task is not None and self._looks:
            task, self._task = self._task, None
            trio.lowlevel.reschedule(task)


class Arrivals:
    """Watches sockets for input and for its end, edge-triggered: watched once, a socket costs no system call again.

    A client that goes is told of even while bytes that nobody has read are in the way, and all that arrives at the
    same time costs one wake-up.

    **Ownership**: sockets and the set are the caller's: `forget` a socket before closing it, for a forked child may
    hold it open, and the kernel would go on telling of a number that is another socket's by then.

    ``woken_at_once``: so many tasks are woken for input before they run.
    """

    def __init__(self, epoll: select.epoll, woken_at_once: int = _TOLD_AT_ONCE) -> None:
        self.woken_at_once = woken_at_once
        self._epoll = epoll
        self._inlets: dict[int, Inlet] = {}

    def watch(self, descriptor: int, inlet: Inlet) -> None:
        """**Errors**: `OSError` when the kernel takes no more."""
        self._epoll.register(descriptor, select.EPOLLIN | select.EPOLLPRI | select.EPOLLRDHUP | select.EPOLLET)
        self._inlets[descriptor] = inlet

    def forget(self, descriptor: int) -> None:
        if self._inlets.pop(descriptor, None) is not None:
            self._epoll.unregister(descriptor)

    async def run(self) -> None:
        """Wake those who wait, until cancelled: those whose input has ended at once, the others a few at a time."""
        come: collections.deque[Inlet] = collections.deque()
        while True:
            if come:
                await trio.lowlevel.checkpoint()
            else:
                await trio.lowlevel.wait_readable(self._epoll)
            self._look(come)
            for _ in range(min(len(come), self.woken_at_once)):
                come.popleft().wake()

    def _look(self, come: collections.deque[Inlet]) -> None:
        """Tell of what is new. Those to wake for input, each once, go to ``come``.

        No checkpoint in here: each descriptor is still the one that was registered.
        """
        inlets = self._inlets
        ending = select.EPOLLRDHUP | select.EPOLLHUP | select.EPOLLERR
        special = ending | select.EPOLLPRI
        for descriptor, events in self._epoll.poll(0, _TOLD_AT_ONCE):
            inlet = inlets.get(descriptor)
            if inlet is not None:
                if events & special:
                    inlet.arrived(ends=bool(events & ending), urgent=bool(events & select.EPOLLPRI))
                    inlet.wake()
                elif inlet.arrived():
                    come.append(inlet)


@contextlib.contextmanager
def open_arrivals(woken_at_once: int = _TOLD_AT_ONCE) -> Iterator[Arrivals | None]:
    """None where there is no epoll: only Linux reports the end of input apart from the input."""
    if not hasattr(select, "EPOLLRDHUP"):
        yield None
        return
    with select.epoll() as epoll:
        yield Arrivals(epoll, woken_at_once)
