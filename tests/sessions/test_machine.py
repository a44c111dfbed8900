"""A registry against a small model, in virtual time, over random schedules.

The machine holds every string: opens and closes wait until a rule lets them end, each honours, swallows or ignores
its cancellation as it was told to, and time moves only by a rule. After each rule the model must agree.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import attrs
import hypothesis.strategies as st
import pytest
import trio
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from trio.testing import MockClock, wait_all_tasks_blocked

from gym_trio.errors import SessionCloseFailed, SessionConflict, SessionsDraining, SessionSetupError
from gym_trio.sessions import DrainReport, Receipt, SessionRegistry, open_session_registry

CLOSE_TIMEOUT, RECEIPT_WINDOW, IDLE = 2, 5, 7

IDS = st.sampled_from(["a", "a", "b"])
BODIES = st.sampled_from(["body", "body", "body", "other"])
ON_CANCEL = st.sampled_from(["honour", "partial", "swallow", "ignore"])
OPEN_ENDS = st.sampled_from(["made", "made", "raise", "partial"])
CLOSE_ENDS = st.sampled_from(["ok", "ok", "raise"])


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


class Loop:
    """A trio run in a thread, with a mock clock that only the machine moves."""

    def __init__(self) -> None:
        self.clock = MockClock()
        self.failure: BaseException | None = None
        self._up = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        self._up.wait()

    def _run(self) -> None:
        try:
            trio.run(self._main, clock=self.clock)
        except BaseException as error:  # noqa: BLE001  raised again in the machine's thread
            self.failure = error
        finally:
            self._up.set()

    async def _main(self) -> None:
        self.token = trio.lowlevel.current_trio_token()
        self.leave = trio.Event()
        async with (
            trio.open_nursery() as self.nursery,
            open_session_registry(
                name="r",
                session_close_timeout_seconds=CLOSE_TIMEOUT,
                session_close_retry_window_seconds=RECEIPT_WINDOW,
                idle_ttl_seconds=IDLE,
            ) as self.registry,
        ):
            self._up.set()
            await self.leave.wait()

    def do(self, step: Callable[[], Awaitable[Any] | None]) -> None:
        async def run() -> None:
            result = step()
            if result is not None:
                await result
            await wait_all_tasks_blocked()

        trio.from_thread.run(run, trio_token=self.token)

    def end(self) -> None:
        if self._thread.is_alive():
            self.token.run_sync_soon(self.leave.set)
        self._thread.join()
        if self.failure is not None:
            raise self.failure


class RegistryMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        logging.getLogger("gym_trio.sessions").setLevel(logging.CRITICAL)  # tens of thousands of expected warnings
        self.loop = Loop()
        self.now = 0
        self.models = {session_id: Model() for session_id in "ab"}
        self.made: list[State] = []
        self.results: dict[int, Any] = {}
        self.scopes: dict[int, trio.CancelScope] = {}
        self.expected: dict[int, Callable[[Any], bool]] = {}
        self.violations: list[str] = []
        self.draining = False
        self.free = False  # closes end by themselves, at once

    @property
    def registry(self) -> SessionRegistry[Any]:
        return self.loop.registry

    # --- clients, and user code ---

    def start(self, expected: Callable[[Any], bool], call: Callable[[], Awaitable[Any]]) -> int:
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

        self.loop.do(lambda: self.loop.nursery.start_soon(client))
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

    def begin_close(self, model: Model) -> None:
        if model.attempt_until is not None:
            return
        model.phase = "closing"
        model.attempt_until = self.now + CLOSE_TIMEOUT
        if model.open_call is not None:
            if model.open_call.on_cancel == "ignore":
                return
            model.open_call = None
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

    # --- rules ---

    @rule(
        session_id=IDS,
        body=BODIES,
        on_cancel=ON_CANCEL,
        close_on_cancel=st.sampled_from(["honour", "swallow", "ignore"]),
    )
    def seed(self, session_id: str, body: str, on_cancel: str, close_on_cancel: str) -> None:
        model = self.models[session_id]
        call = Call(on_cancel)
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
        number = self.start(expected, client)
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

    @rule(data=st.data())
    def client_leaves(self, data: st.DataObject) -> None:
        waiting = sorted(set(self.scopes) - set(self.results))
        if not waiting:
            return
        number = data.draw(st.sampled_from(waiting))
        self.results[number] = "left"
        self.expected[number] = lambda got: True
        self.loop.do(lambda: self.scopes[number].cancel())
        for model in self.models.values():
            if number in model.waiters:
                model.waiters.discard(number)
                if model.phase == "seeding" and not model.waiters:
                    self.begin_close(model)

    @rule(session_id=IDS, end=OPEN_ENDS)
    def open_ends(self, session_id: str, end: str) -> None:
        model = self.models[session_id]
        call = model.open_call
        if call is None:
            return
        call.end = end
        self.loop.do(call.gate.set)
        model.open_call = None
        if model.phase == "seeding":
            model.waiters.clear()
            if end == "made":
                model.phase, model.state = "ready", self.made[-1]
                model.idle_at = self.now + IDLE
            else:
                self.begin_close(model)
        elif model.attempt_until is None:
            self.begin_close(model)
        else:
            self.open_ended(model)

    @rule(session_id=IDS)
    def close(self, session_id: str) -> None:
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
            self.start(
                lambda got: isinstance(got, Receipt) and not got.had_state, lambda: self.registry.close(session_id)
            )
            return
        closed = model.phase == "closed"
        self.start(judge, lambda: self.registry.close(session_id))
        if not closed:
            self.begin_close(model)

    @rule(session_id=IDS, end=CLOSE_ENDS)
    def close_ends(self, session_id: str, end: str) -> None:
        model = self.models[session_id]
        call = model.close_call
        if call is None or call.over:
            return
        call.end = end
        self.loop.do(call.gate.set)
        late, model.late = model.late, False
        if end == "ok" and not late:
            self.confirm(model)
        else:
            model.attempt_until = None

    @rule(session_id=IDS)
    def use(self, session_id: str) -> None:
        model = self.models[session_id]

        def get() -> None:
            try:
                got = self.registry.get(session_id)
            except SessionConflict:
                assert model.phase != "ready"
            else:
                assert model.phase == "ready"
                assert got is model.state

        self.loop.do(get)
        if model.phase == "ready":
            model.idle_at = self.now + IDLE

    @rule(seconds=st.integers(1, 8))
    def time_passes(self, seconds: int) -> None:
        async def pass_seconds() -> None:
            for _ in range(seconds):
                self.now += 1
                self.loop.clock.jump(1)
                await wait_all_tasks_blocked()
                for session_id, model in self.models.items():
                    self.tick(session_id, model)

        self.loop.do(pass_seconds)

    def tick(self, session_id: str, model: Model) -> None:
        if model.phase == "ready" and self.now >= model.idle_at:
            self.begin_close(model)
        elif model.phase == "closed" and self.now >= model.receipt_until:
            self.models[session_id] = Model()
        elif model.attempt_until is not None and self.now >= model.attempt_until and not model.late:
            if model.state is not None and model.close_call is not None and not model.close_call.over:
                model.late = True
            else:
                model.attempt_until = None

    @precondition(lambda self: self.now >= 6)
    @rule()
    def drain(self) -> None:
        self.draining = True
        live = {name for name, model in self.models.items() if model.phase in ("seeding", "ready", "closing")}

        def judge(got: Any) -> bool:
            return isinstance(got, DrainReport) and {name for name, _ in got.unconfirmed} <= set("ab")

        self.start(judge, self.registry.drain)
        for session_id in live:
            self.begin_close(self.models[session_id])

    # --- what must hold after every rule ---

    @invariant()
    def phases_agree(self) -> None:
        for session_id, model in self.models.items():
            phase = self.registry.phase(session_id)
            assert (phase.value if phase else None) == model.phase, session_id

    @invariant()
    def one_live_state_per_id_and_none_forgotten(self) -> None:
        for session_id, model in self.models.items():
            live = [state for state in self.made if state.session_id == session_id and not state.confirmed]
            assert len(live) <= 1
            assert not live or model.phase in ("ready", "closing")
            if model.phase == "closed":
                assert not live

    @invariant()
    def no_close_runs_twice(self) -> None:
        assert not self.violations

    @invariant()
    def answers_are_right(self) -> None:
        for number, got in self.results.items():
            assert got == "left" or self.expected[number](got), (number, got)

    def teardown(self) -> None:
        """Let everything end: then every state that was made has a confirmed close."""
        try:
            self.free = True
            for session_id in "ab":
                self.open_ends(session_id, "made")
                self.close_ends(session_id, "ok")
        finally:
            self.loop.end()
            logging.getLogger("gym_trio.sessions").setLevel(logging.NOTSET)
        assert all(state.confirmed for state in self.made)
        assert not self.violations


TestRegistry = RegistryMachine.TestCase
TestRegistry.pytestmark = [pytest.mark.timeout(240)]  # 2,000 schedules, on a busy machine too
TestRegistry.settings = settings(
    max_examples=2000, stateful_step_count=25, deadline=None, print_blob=True, suppress_health_check=list(HealthCheck)
)
