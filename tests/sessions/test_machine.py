"""A registry against a small model, in virtual time, over random schedules.

The machine holds every string: opens and closes wait until a rule lets them end, each honours, swallows or ignores
its cancellation as it was told to, and time moves only by a rule. Rules write a schedule; it is then played in one trio
run, and the model must agree after each step.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Awaitable, Callable
from typing import Any

import attrs
import hypothesis.strategies as st
import pytest
import trio
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule
from trio.testing import MockClock, wait_all_tasks_blocked

from gym_trio.errors import SessionCloseFailed, SessionConflict, SessionsDraining, SessionSetupError
from gym_trio.sessions import DrainReport, Receipt, SessionRegistry, open_session_registry

CLOSE_TIMEOUT, RECEIPT_WINDOW, IDLE = 2, 3, 4
STEPS, DRAIN_FROM = 25, 18  # a drain ends most of what could be tried

IDS = ("a", "a", "b")
BODIES = ("body", "body", "body", "other")
ON_CANCEL = ("honour", "partial", "swallow", "ignore")
OPEN_ENDS = ("made", "made", "raise", "partial")
CLOSE_ON_CANCEL = ("honour", "swallow", "ignore")
CLOSE_ENDS = ("ok", "ok", "raise")

Schedule = list[tuple[str, tuple[Any, ...]]]


class Failed(Exception):
    """What user code raises here."""


@attrs.define(eq=False)
class Call:
    """One running open or close, and the string that ends it."""

    on_cancel: str
    gate: trio.Event = attrs.field(factory=trio.Event)
    end: str = ""
    cut: bool = False
    over: bool = False

    async def wait(self) -> str:
        """How it ends; "cut" when its cancellation ends it."""
        try:
            await self.gate.wait()
        except trio.Cancelled:
            self.cut = True
            if self.on_cancel != "ignore":
                raise
            with trio.CancelScope(shield=True):
                await self.gate.wait()
        return self.end


@attrs.define(eq=False)
class State:
    """What an open made. ``confirmed`` becomes True when a close of it has returned in time."""

    session_id: str
    confirmed: bool = False


@attrs.define(eq=False)
class Model:
    """What one id should be."""

    phase: str | None = None
    body: str = ""
    waiters: set[int] = attrs.field(factory=set)
    open_call: Call | None = None
    state: State | None = None
    close_call: Call | None = None
    attempt_until: int | None = None  # the deadline of the running close
    late: bool = False  # that deadline has passed, and its code goes on
    idle_at: int = 0
    receipt_until: int = 0


class World:
    """The registry, its clients and its user code, and what the model says of them. Each step is a coroutine method."""

    def __init__(self, registry: SessionRegistry[Any], nursery: trio.Nursery, clock: MockClock) -> None:
        self.registry = registry
        self.nursery = nursery
        self.clock = clock
        self.now = 0
        self.models = {session_id: Model() for session_id in "ab"}
        self.made: list[State] = []
        self.results: dict[int, Any] = {}
        self.scopes: dict[int, trio.CancelScope] = {}
        self.expected: dict[int, Callable[[Any], bool]] = {}
        self.calls: list[Call] = []
        self.violations: list[str] = []
        self.draining = False
        self.free = False  # closes end by themselves, at once

    # --- clients, and user code ---

    async def start(self, expected: Callable[[Any], bool], call: Callable[[], Awaitable[Any]]) -> int:
        """A client; ``expected`` judges what it gets, if it stays."""
        number = len(self.scopes)
        scope = self.scopes[number] = trio.CancelScope()
        self.expected[number] = expected

        async def client() -> None:
            with scope:
                try:
                    self.results[number] = await call()
                except Exception as error:  # noqa: BLE001  judged below
                    self.results[number] = error

        self.nursery.start_soon(client)
        await wait_all_tasks_blocked()
        return number

    def make_open(self, session_id: str, call: Call) -> Callable[[], Awaitable[State]]:
        def make() -> State:
            self.made.append(State(session_id))
            return self.made[-1]

        async def open_session() -> State:
            try:
                end = await call.wait()
            except trio.Cancelled:
                if call.on_cancel == "partial":
                    raise SessionSetupError(make()) from None
                if call.on_cancel == "swallow":
                    return make()
                raise
            finally:
                call.over = True
            if end == "raise":
                raise Failed
            if end == "partial":
                raise SessionSetupError(make())
            return make()

        return open_session

    def make_close(self, model: Model, on_cancel: str) -> Callable[[State], Awaitable[str]]:
        async def close_session(state: State) -> str:
            # Noted and not raised: the registry would take it for a close that fails.
            if state.confirmed:
                self.violations.append("closed again after a confirmed close")
            if model.close_call is not None and not model.close_call.over:
                self.violations.append("two closes of one session at once")
            if self.free:
                state.confirmed = True
                return "observed"
            call = model.close_call = Call(on_cancel)
            self.calls.append(call)
            try:
                if await call.wait() == "raise":
                    raise Failed
            except trio.Cancelled:
                if on_cancel != "swallow":
                    raise
            finally:
                call.over = True
            state.confirmed = not call.cut
            return "observed"

        return close_session

    # --- what the model says ---

    def begin_close(self, model: Model, *, stop_open: bool = False) -> None:
        if stop_open and model.open_call is not None and model.open_call.on_cancel != "ignore":
            model.open_call = None
        waiting_for_open = model.attempt_until is not None and model.state is None
        if model.attempt_until is None:
            model.phase = "closing"
            model.attempt_until = self.now + CLOSE_TIMEOUT
            waiting_for_open = True
        if waiting_for_open and model.open_call is None:
            self.open_ended(model)

    def open_ended(self, model: Model) -> None:
        """The open of a session that closes has let go; its state, if any, is what it made last."""
        made = [state for state in self.made if not state.confirmed]
        model.state = next((state for state in made if self.models[state.session_id] is model), None)
        if model.state is None:
            self.confirm(model)

    def confirm(self, model: Model) -> None:
        model.phase, model.state, model.attempt_until, model.late = "closed", None, None, False
        model.receipt_until = self.now + RECEIPT_WINDOW

    # --- steps ---

    async def seed(self, session_id: str, body: str, on_cancel: str, close_on_cancel: str) -> None:
        model = self.models[session_id]
        call = Call(on_cancel)
        self.calls.append(call)
        expected = self.judge_seed(model, body)

        async def client() -> Any:
            return await self.registry.seed(
                session_id,
                fingerprint=body,
                open=self.make_open(session_id, call),
                close=self.make_close(model, close_on_cancel),
            )

        fresh = model.phase is None and not self.draining
        if fresh:
            model = self.models[session_id]
            model.phase, model.body, model.open_call, model.close_call = "seeding", body, call, None
        number = await self.start(expected, client)
        if model.phase == "seeding" and model.body == body:
            model.waiters.add(number)

    def judge_seed(self, model: Model, body: str) -> Callable[[Any], bool]:
        if model.phase is None:
            if self.draining:
                return lambda got: isinstance(got, SessionsDraining)
        elif model.phase in ("closing", "closed") or model.body != body:
            return lambda got: isinstance(got, SessionConflict)
        if model.phase == "ready":
            return lambda got, state=model.state: got is state
        return lambda got: isinstance(got, State | Failed | SessionSetupError | SessionConflict | SessionsDraining)

    async def client_leaves(self, index: int) -> None:
        waiting = sorted(set(self.scopes) - set(self.results))
        if not waiting:
            return
        number = waiting[index % len(waiting)]
        self.results[number] = "left"
        self.expected[number] = lambda got: True
        self.scopes[number].cancel()
        await wait_all_tasks_blocked()
        for model in self.models.values():
            if number in model.waiters:
                model.waiters.discard(number)
                if model.open_call is not None and not model.waiters:
                    self.begin_close(model, stop_open=True)

    async def open_ends(self, session_id: str, end: str) -> None:
        model = self.models[session_id]
        call = model.open_call
        if call is None:
            return
        call.end = end
        call.gate.set()
        await wait_all_tasks_blocked()
        model.open_call = None
        model.waiters.clear()
        if model.phase == "seeding":
            if end == "made":
                model.phase, model.state = "ready", self.made[-1]
                model.idle_at = self.now + IDLE
            else:
                self.begin_close(model)
        elif model.attempt_until is None:
            self.begin_close(model)
        else:
            self.open_ended(model)

    async def close(self, session_id: str) -> None:
        model = self.models[session_id]
        state = model.state

        def judge(got: Any) -> bool:
            if isinstance(got, Receipt):
                # Never a receipt without a confirmed close; one without a state only where there is none.
                left = [one for one in self.made if one.session_id == session_id and not one.confirmed]
                return got.had_state == (got.value == "observed") and (
                    state is None or state.confirmed or state not in left
                )
            return isinstance(got, SessionCloseFailed)

        if model.phase is None:
            model.phase = "closed"
            model.receipt_until = self.now + RECEIPT_WINDOW
            await self.start(
                lambda got: isinstance(got, Receipt) and not got.had_state, lambda: self.registry.close(session_id)
            )
            return
        closed = model.phase == "closed"
        await self.start(judge, lambda: self.registry.close(session_id))
        if not closed:
            self.begin_close(model)

    async def close_ends(self, session_id: str, end: str) -> None:
        model = self.models[session_id]
        call = model.close_call
        if call is None or call.over:
            return
        call.end = end
        call.gate.set()
        await wait_all_tasks_blocked()
        late, model.late = model.late, False
        if end == "ok" and not late:
            self.confirm(model)
        else:
            model.attempt_until = None

    async def use(self, session_id: str, seconds: int) -> None:
        """Use a session, after and before some time that may or may not make it idle."""
        await self.time_passes(seconds)
        model = self.models[session_id]
        try:
            got = self.registry.get(session_id)
        except SessionConflict:
            assert model.phase != "ready"
        else:
            assert model.phase == "ready"
            assert got is model.state
            model.idle_at = self.now + IDLE
        await self.time_passes(seconds)

    async def time_passes(self, seconds: int) -> None:
        for _ in range(seconds):
            self.now += 1
            self.clock.jump(1)
            await wait_all_tasks_blocked()
            for session_id, model in self.models.items():
                self.tick(session_id, model)

    def tick(self, session_id: str, model: Model) -> None:
        if model.phase == "ready" and self.now >= model.idle_at:
            self.begin_close(model)
        elif model.phase == "closed" and self.now >= model.receipt_until:
            self.models[session_id] = Model()
        elif model.attempt_until is not None and self.now >= model.attempt_until and not model.late:
            if model.state is not None and model.close_call is not None and not model.close_call.over:
                model.late = True
                return
            model.attempt_until = None
            if model.open_call is not None and model.open_call.on_cancel != "ignore":
                self.begin_close(model, stop_open=True)

    async def drain(self) -> None:
        self.draining = True
        live = {name for name, model in self.models.items() if model.phase in ("seeding", "ready", "closing")}

        def judge(got: Any) -> bool:
            return isinstance(got, DrainReport) and {name for name, _ in got.unconfirmed} <= set("ab")

        await self.start(judge, self.registry.drain)
        for session_id in live:
            self.begin_close(self.models[session_id], stop_open=True)

    # --- what must hold after every step ---

    def check(self) -> None:
        for session_id, model in self.models.items():
            phase = self.registry.phase(session_id)
            assert (phase.value if phase else None) == model.phase, f"{session_id}: {phase} is not {model.phase}"
            live = [state for state in self.made if state.session_id == session_id and not state.confirmed]
            assert len(live) <= 1, "two live states of one id"
            assert not live or model.phase in ("ready", "closing"), "a live state is forgotten"
        for number, got in self.results.items():
            assert got == "left" or self.expected[number](got), f"client {number} got {got!r}"
        assert not self.violations

    async def end(self) -> None:
        """Let everything end by itself from here on."""
        self.free = True
        for session_id in "ab":
            await self.open_ends(session_id, "made")
            await self.close_ends(session_id, "ok")

    def let_go(self) -> None:
        """After a failed check nothing may wait for the machine any more."""
        self.free = True
        for call in self.calls:
            call.gate.set()
        self.clock.autojump_threshold = 0


async def play(schedule: Schedule, clock: MockClock) -> None:
    async with (
        trio.open_nursery() as nursery,
        open_session_registry(
            name="r",
            session_close_timeout_seconds=CLOSE_TIMEOUT,
            session_close_retry_window_seconds=RECEIPT_WINDOW,
            idle_ttl_seconds=IDLE,
        ) as registry,
    ):
        world = World(registry, nursery, clock)
        try:
            for step, arguments in schedule:
                await getattr(world, step)(*arguments)
                world.check()
            await world.end()
        except BaseException:
            world.let_go()
            raise
    assert all(state.confirmed for state in world.made), "a state outlived the registry"
    assert not world.violations


def play_one(schedule: Schedule) -> None:
    logger = logging.getLogger("gym_trio.sessions")
    logger.setLevel(logging.CRITICAL)  # tens of thousands of expected warnings
    clock = MockClock()
    try:
        trio.run(play, schedule, clock, clock=clock)
    finally:
        logger.setLevel(logging.NOTSET)


def random_schedule(seed: int) -> Schedule:
    """Draw steps as the rules of the machine do; some are frequent in a schedule, and some it lacks."""
    draw = random.Random(seed)
    schedule: Schedule = []

    def seeded(body: str, on_cancel: str) -> tuple[str, tuple[Any, ...]]:
        return ("seed", (draw.choice(IDS), body, on_cancel, draw.choice(CLOSE_ON_CANCEL)))

    def open_at_once() -> Schedule:
        step = seeded("body", "honour")
        return [step, ("open_ends", (step[1][0], "made"))]

    steps: dict[str, Callable[[], Schedule]] = {
        "seed": lambda: [seeded(draw.choice(BODIES), draw.choice(ON_CANCEL))],
        "open at once": open_at_once,
        "client_leaves": lambda: [("client_leaves", (draw.randint(0, 5),))],
        "open_ends": lambda: [("open_ends", (draw.choice(IDS), draw.choice(OPEN_ENDS)))],
        "close": lambda: [("close", (draw.choice(IDS),))],
        "close_ends": lambda: [("close_ends", (draw.choice(IDS), draw.choice(CLOSE_ENDS)))],
        "use": lambda: [("use", (draw.choice(IDS), draw.randint(0, 3)))],
        "time_passes": lambda: [("time_passes", (draw.randint(1, 5),))],
        "drain": lambda: [("drain", ())] if len(schedule) >= DRAIN_FROM else [],
    }
    weights = [1, *(draw.choice((0, 1, 1, 3)) for _ in range(len(steps) - 1))]  # without a seed nothing happens
    for name in draw.choices(list(steps), weights, k=STEPS):
        schedule += steps[name]()
    return schedule


@pytest.mark.parametrize("block", range(8))
def test_seeded_schedules_agree_with_the_model(block: int) -> None:
    """250 random schedules per block."""
    for seed in range(block * 250, block * 250 + 250):
        schedule = random_schedule(seed)
        try:
            play_one(schedule)
        except BaseException as error:
            error.add_note(f"seed {seed}: {schedule}")
            raise


class RegistryMachine(RuleBasedStateMachine):
    """Looks for a schedule in which registry and model differ, and would show the shortest."""

    def __init__(self) -> None:
        super().__init__()
        self.schedule: Schedule = []

    def add(self, step: str, *arguments: Any) -> None:
        self.schedule.append((step, arguments))

    @rule(
        session_id=st.sampled_from(IDS),
        body=st.sampled_from(BODIES),
        on_cancel=st.sampled_from(ON_CANCEL),
        close_on_cancel=st.sampled_from(CLOSE_ON_CANCEL),
    )
    def seed(self, session_id: str, body: str, on_cancel: str, close_on_cancel: str) -> None:
        self.add("seed", session_id, body, on_cancel, close_on_cancel)

    @rule(session_id=st.sampled_from(IDS), close_on_cancel=st.sampled_from(CLOSE_ON_CANCEL))
    def open_at_once(self, session_id: str, close_on_cancel: str) -> None:
        self.add("seed", session_id, "body", "honour", close_on_cancel)
        self.add("open_ends", session_id, "made")

    @rule(index=st.integers(0, 5))
    def client_leaves(self, index: int) -> None:
        self.add("client_leaves", index)

    @rule(session_id=st.sampled_from(IDS), end=st.sampled_from(OPEN_ENDS))
    def open_ends(self, session_id: str, end: str) -> None:
        self.add("open_ends", session_id, end)

    @rule(session_id=st.sampled_from(IDS))
    def close(self, session_id: str) -> None:
        self.add("close", session_id)

    @rule(session_id=st.sampled_from(IDS), end=st.sampled_from(CLOSE_ENDS))
    def close_ends(self, session_id: str, end: str) -> None:
        self.add("close_ends", session_id, end)

    @rule(session_id=st.sampled_from(IDS), seconds=st.integers(0, 3))
    def use(self, session_id: str, seconds: int) -> None:
        self.add("use", session_id, seconds)

    @rule(seconds=st.integers(1, 5))
    def time_passes(self, seconds: int) -> None:
        self.add("time_passes", seconds)

    @precondition(lambda self: len(self.schedule) >= DRAIN_FROM)
    @rule()
    def drain(self) -> None:
        self.add("drain")

    def teardown(self) -> None:
        play_one(self.schedule)


TestRegistry = RegistryMachine.TestCase
TestRegistry.settings = settings(
    max_examples=200, stateful_step_count=STEPS, deadline=None, print_blob=True, suppress_health_check=list(HealthCheck)
)
