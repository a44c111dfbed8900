"""One child process, as its pool sees it."""

from __future__ import annotations

import itertools
import math
import signal
from typing import Any

import orjson
import trio

from ...errors import ConfigError, FailureKind, ServerStartError
from ...processes import ManagedProcess, Supervisor
from ._rollout import Ask, ChildRollout
from ._settings import HEAD, VerifiersSettings, frame

__all__ = ["Child"]

MESSAGE_BYTES = 1 << 30
EXIT_SECONDS = 5.0  # between the end of its socket and that of its process


class Child:
    """A child with its socket. `serve` runs as long as it does.

    **Ownership**: the process is the supervisor's; the socket is closed by `serve`.
    """

    def __init__(
        self, settings: VerifiersSettings, supervisor: Supervisor, process: ManagedProcess, stream: trio.SocketStream
    ) -> None:
        self._settings = settings
        self._supervisor = supervisor
        self._process = process
        self._stream = stream
        self._frames, self._outgoing = trio.open_memory_channel[bytes](math.inf)
        self._rollouts: dict[int, ChildRollout] = {}
        self._numbers = itertools.count(1)
        self._loaded = trio.Event()
        self._unusable: str | None = None
        self._killed_because: str | None = None
        self._lost: dict[str, Any] | None = None  # once it is gone, what its rollouts are told

    def __repr__(self) -> str:
        return f"<Child {self._process.name} pid={self._process.pid} rollouts={len(self._rollouts)}>"

    @property
    def is_gone(self) -> bool:
        return self._lost is not None

    async def loaded(self) -> None:
        """Wait until the environment is loaded.

        **Errors**: `ConfigError` when it cannot be; `ServerStartError` when the process ended instead.
        """
        self._frames.send_nowait(self._settings.question("serve"))
        with trio.move_on_after(self._settings.load_timeout_seconds) as bound:
            await self._loaded.wait()
        name = self._process.name
        if bound.cancelled_caught:
            seconds = self._settings.load_timeout_seconds
            raise ConfigError(
                f"the environment was not loaded within {seconds:g} s", key=f"{name}.load_timeout_seconds"
            )
        if self._unusable is not None:
            raise ConfigError(self._unusable, key=f"{name}.env_id")
        if self._lost is not None:
            lines = self._process.last_lines()
            raise ServerStartError("\n".join([self._lost["message"], *lines]), server=name, last_lines=lines)

    async def run(self, example: dict[str, Any], sampling: dict[str, Any], ask: Ask) -> dict[str, Any]:
        """One rollout: its result.

        **Cancellation**: the rollout is cancelled in the child; when that is not confirmed within
        ``cancel_timeout_seconds``, the child is killed, and its other rollouts fail.

        **Errors**: `RolloutFailure`.
        """
        number = next(self._numbers)
        rollout = self._rollouts[number] = ChildRollout(number, self, ask)
        if self._lost is not None:
            rollout.deliver(self._lost)
        self.tell(op="run", id=number, example=example, sampling=sampling)
        try:
            return await rollout.attend()
        finally:
            if not rollout.is_over:
                await self._withdraw(rollout)
            del self._rollouts[number]
            rollout.close()

    def tell(self, **message: Any) -> None:
        if self._lost is None:
            self._frames.send_nowait(frame(message))

    async def _withdraw(self, rollout: ChildRollout) -> None:
        seconds = self._settings.cancel_timeout_seconds
        with trio.move_on_after(seconds, shield=True) as bound:
            await rollout.withdraw()
        if bound.cancelled_caught and self._lost is None:
            self._killed_because = f"a cancelled rollout in it did not end within {seconds:g} s"
            await self._supervisor.end(self._process)

    async def serve(self) -> None:
        """Carry messages until the child, or whoever runs this, ends.

        **Cancellation**: closes the socket, which tells the child to end.
        """
        ended_by_itself = False
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._write)
                await self._read()
                ended_by_itself = True
                nursery.cancel_scope.cancel()
        finally:
            self._stream.socket.close()
            self._lose(await self._find_end() if ended_by_itself else _SHUTDOWN)

    async def _write(self) -> None:
        try:
            async for content in self._outgoing:
                await self._stream.send_all(content)
        except trio.BrokenResourceError:
            return  # it has ended, which the reading side sees too

    async def _read(self) -> None:
        try:
            while True:
                (length,) = HEAD.unpack(await self._receive(HEAD.size))
                if length > MESSAGE_BYTES:
                    raise trio.BrokenResourceError
                self._take(orjson.loads(await self._receive(length)))
        except (trio.BrokenResourceError, orjson.JSONDecodeError):
            return

    async def _receive(self, length: int) -> bytearray:
        parts = bytearray()
        while len(parts) < length:
            part = await self._stream.receive_some(min(length - len(parts), 1 << 20))
            if not part:
                raise trio.BrokenResourceError
            parts += part
        return parts

    def _take(self, message: dict[str, Any]) -> None:
        match message["op"]:
            case "ready":
                self._loaded.set()
            case "unusable":
                self._unusable = message["message"]
                self._loaded.set()
            case _:
                rollout = self._rollouts.get(message["id"])
                if rollout is not None:
                    rollout.deliver(message)

    async def _find_end(self) -> dict[str, Any]:
        """Why it ended, from its process, of which nothing is left then."""
        # The socket's end comes a moment before the process's.
        with trio.move_on_after(EXIT_SECONDS, shield=True):
            await self._process.wait()
        code = self._process.returncode
        await self._supervisor.end(self._process)
        name = self._process.name
        if self._killed_because is not None:
            return _lost(FailureKind.KILL_SHAPED, f"{name} was killed: {self._killed_because}")
        if code is None:
            return _lost(FailureKind.SESSION_LOST, f"{name} closed its socket, and was killed")
        if code < 0:
            return _lost(FailureKind.KILL_SHAPED, f"{name} ended: signal {signal.Signals(-code).name}")
        return _lost(FailureKind.SESSION_LOST, f"{name} ended: exit code {code}")

    def _lose(self, lost: dict[str, Any]) -> None:
        self._lost = lost
        for rollout in self._rollouts.values():
            rollout.deliver(lost)
        self._loaded.set()


def _lost(kind: FailureKind, message: str) -> dict[str, Any]:
    return {"op": "lost", "kind": kind, "message": message}


_SHUTDOWN = _lost(FailureKind.SHUTDOWN, "the server is shutting down")
