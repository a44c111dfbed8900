"""Carrying a prepared run out: servers up, rows through, signals heard, servers down."""

from __future__ import annotations

import functools
import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Literal

import attrs
import trio

from ..collection import PreparedRun, Progress, RunReport, StopRequest, aggregate_run, collect
from ..config import GymConfig
from ..errors import GymError, RunInterrupted
from ..gym import Gym, ProcessOptions, connect_gym, open_gym
from ..processes import Supervisor
from ._collector import collector_for_rollouts
from ._console import tell
from ._fleets import HEAD_TOKEN
from ._metrics import hooks_of
from ._progress import open_display
from ._signals import open_interrupts, open_watch

__all__ = ["RunPlan", "carry_out"]

# What an agent gets to say where its rollouts are.
ASK_SECONDS = 2.0


@attrs.frozen(kw_only=True)
class RunPlan:
    """How a prepared run is carried out."""

    config: GymConfig
    serve: Literal["memory", "sockets", "processes"]
    connect: bool  # to a running fleet's head server, in place of serving
    stream_arguments: dict[str, Any]
    grace_seconds: float
    aggregate: bool
    quiet: bool


class _Stopper:
    """What the signals act on: the start of the servers first, the stream once there is one."""

    def __init__(self) -> None:
        self.request = StopRequest()
        self.starting = trio.CancelScope()
        self.is_running = False
        self.supervisor: Supervisor | None = None
        self.gym: Gym | None = None

    def first(self) -> None:
        self.request.drain()
        if not self.is_running:
            self.starting.cancel()

    def second(self) -> None:
        self.request.cut()
        if self.supervisor is not None:
            self.supervisor.escalate()

    def keep_supervisor(self, supervisor: Supervisor) -> None:
        self.supervisor = supervisor


async def carry_out(prepared: PreparedRun, plan: RunPlan) -> tuple[RunReport, int]:
    """Run to the end or to a signal. The report, and the exit code of the signal that ended it (0 without one).

    **Errors**: `ServerStartError`, `RunError`; `RunError` too when a signal came before the servers were ready.
    """
    stopper = _Stopper()
    progress = Progress()
    report: RunReport | None = None
    aggregate = functools.partial(aggregate_run, hooks=hooks_of(plan.config)) if plan.aggregate else None
    async with (
        open_interrupts(stopper.first, stopper.second) as interrupts,
        open_stuck_report(progress, lambda: stopper.gym),
    ):
        with stopper.starting:
            async with _open_gym(prepared, plan, stopper) as gym:
                stopper.is_running, stopper.gym = True, gym
                with open_display(progress, quiet=plan.quiet) as update:
                    report = await collect(
                        prepared,
                        functools.partial(gym.run_examples, **plan.stream_arguments),
                        progress=progress,
                        on_outcome=update,
                        stop=stopper.request,
                        grace_seconds=plan.grace_seconds,
                        aggregate=aggregate,
                    )
    if report is None:
        raise RunInterrupted(interrupts.exit_code)
    return report, interrupts.exit_code


@asynccontextmanager
async def _open_gym(prepared: PreparedRun, plan: RunPlan, stopper: _Stopper) -> AsyncIterator[Gym]:
    if plan.connect:
        async with connect_gym(plan.config.run.head_server.url, token=os.environ.get(HEAD_TOKEN)) as gym:
            yield gym
    elif not prepared.pending:
        # Complete already: no server is needed to say so.
        async with connect_gym({}) as gym:
            yield gym
    else:
        options = ProcessOptions(on_open=stopper.keep_supervisor, on_exit="restart")
        async with open_gym(plan.config, plan.serve, processes=options) as gym:
            with collector_for_rollouts():
                yield gym


async def stages_at(gym: Gym | None) -> dict[str, str]:
    """Rollout id → stage, as the agents tell it; what does not answer in time is left out."""
    found: dict[str, str] = {}
    for agent in gym.agents if gym is not None else ():
        with trio.move_on_after(ASK_SECONDS):
            try:
                status = (await gym.client.get(agent, "/status")).json() if gym is not None else {}
            except GymError as error:
                tell(f"  {agent} does not tell its stages: {error}")
                continue
            found |= {one["rollout_id"]: one["stage"] for one in status.get("running", ())}
    return found


@asynccontextmanager
async def open_stuck_report(progress: Progress, gym: Callable[[], Gym | None]) -> AsyncIterator[None]:
    """On SIGUSR1, say which rollouts are in flight, in which stage, and for how long, the oldest first."""

    async def watch(task_status: trio.TaskStatus[None]) -> None:
        with trio.open_signal_receiver(signal.SIGUSR1) as signals:
            task_status.started()
            async for _ in signals:
                waiting = progress.in_flight()
                stages = await stages_at(gym()) if waiting else {}
                tell(f"{len(waiting)} rollouts in flight")
                for one in waiting:
                    stage = stages.get(one.rollout_id, "stage not known")
                    where = f"task {one.task} repeat {one.rollout} at {one.agent}"
                    tell(f"  {where}: {stage}, {one.age_seconds:.1f} s")

    async with open_watch(watch):
        yield
