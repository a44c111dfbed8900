"""Schedules against a plain model of the accounting: the model says what must be so whenever nothing moves."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Callable
from typing import Any

import attrs
import pytest
import trio
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test
from trio.testing import MockClock, wait_all_tasks_blocked

from gym_trio.rollouts import RolloutOutcome, open_rollout_stream

END, ERROR = "end", "error"
Command = tuple[str, Any]


@attrs.define
class Setup:
    """What a schedule runs on. Rows in ``stubborn`` stay in a shielded cleanup when they are cancelled."""

    max_concurrent: int | None = None
    max_resident: int | None = None
    stubborn: frozenset[int] = frozenset()
    fails: bool = False  # the source ends by raising


@attrs.define
class Model:
    """Where everything must be. Rows, consumers and calls are numbers; ``None`` is a call that has not returned."""

    setup: Setup
    supplied: int = 0
    source_ended: bool = False
    end_seen: bool = False  # a pull met the end of the source
    error_left: bool = False  # the source's error has not been raised to anyone
    pulled: int = 0
    running: list[int] = attrs.Factory(list)
    dying: list[int] = attrs.Factory(list)  # cancelled, and in a shielded cleanup
    sent: set[int] = attrs.Factory(set)
    ready: list[int] = attrs.Factory(list)
    parked: list[int] = attrs.Factory(list)
    received: dict[int, int | str] = attrs.Factory(dict)
    drains: dict[int, float] = attrs.Factory(dict)  # under way, with the end of their grace
    drained: list[list[int]] = attrs.Factory(list)
    closes: int = 0  # under way
    delivered: int = 0
    discarded: int = 0
    unfinished: dict[int, str] = attrs.Factory(dict)
    phase: str = "open"  # grace, cut, closed
    released: bool = False
    now: float = 0.0

    def apply(self, command: Command) -> None:
        getattr(self, command[0])(command[1])
        self.settle()

    def supply(self, count: int) -> None:
        self.supplied += count

    def end_source(self, _: None) -> None:
        self.source_ended = True

    def park(self, consumer: int) -> None:
        if self.phase == "open":
            self.parked.append(consumer)
        else:
            self.received[consumer] = END

    def cancel_consumer(self, consumer: int) -> None:
        self.parked.remove(consumer)

    def send(self, row: int) -> None:
        self.sent.add(row)

    def finish(self, row: int) -> None:
        self.running.remove(row)
        self.ready.append(row)

    fail = finish

    def release(self, row: int) -> None:
        self.dying.remove(row)
        self.withdraw(row)

    def withdraw(self, row: int) -> None:
        self.unfinished[row] = "possibly_delivered" if row in self.sent else "not_sent"

    def stop(self, to: str) -> None:
        if self.phase == "open":
            for consumer in self.parked:
                self.received[consumer] = END
            self.parked.clear()
        if to == "cut" and self.phase in ("open", "grace"):
            for row in self.running:
                if row in self.setup.stubborn:
                    self.dying.append(row)
                else:
                    self.withdraw(row)
            self.running.clear()
        if self.phase != "closed" and self.phase != "cut":
            self.phase = to

    def aclose(self, _: int) -> None:
        self.stop("cut")
        self.released = True
        self.closes += 1

    def drain(self, call: tuple[int, float]) -> None:
        self.stop("grace" if call[1] else "cut")
        self.drains[call[0]] = self.now + call[1]

    def cancel_drain(self, call: int) -> None:
        del self.drains[call]

    def advance(self, seconds: float) -> None:
        self.now += seconds
        if self.phase == "grace" and any(end <= self.now for end in self.drains.values()):
            self.stop("cut")

    def settle(self) -> None:
        while self.phase == "open":
            if self.ready and self.parked:
                self.received[self.parked.pop(0)] = self.take(1)[0]
            elif self.pulled < self.supplied and self.has_room():
                self.running.append(self.pulled)
                self.pulled += 1
            else:
                break
        if self.phase == "open":
            self.see_the_end()
        if self.phase in ("grace", "cut") and not self.running and not self.dying:
            self.phase = "closed"
        if self.phase == "closed":
            for _ in self.drains:
                self.drained.append(self.take(len(self.ready)))
            self.drains.clear()
            self.closes = 0
        if self.released and not self.drains:
            self.discarded += len(self.ready)
            self.ready.clear()

    def see_the_end(self) -> None:
        if self.source_ended and self.pulled == self.supplied and self.has_room() and not self.end_seen:
            self.error_left, self.end_seen = self.setup.fails, True
        if self.has_ended():
            for consumer in self.parked:
                self.received[consumer] = ERROR if self.error_left else END
                self.error_left = False
            self.parked.clear()

    def take(self, count: int) -> list[int]:
        taken, self.ready = self.ready[:count], self.ready[count:]
        self.delivered += count
        return taken

    def has_room(self) -> bool:
        running, limits = len(self.running), self.setup
        concurrent = limits.max_concurrent is None or running < limits.max_concurrent
        return concurrent and (limits.max_resident is None or running + len(self.ready) < limits.max_resident)

    def has_ended(self) -> bool:
        return self.source_ended and self.pulled == self.supplied and not self.running and not self.ready

    def view(self) -> dict[str, Any]:
        flying = {row: "possibly_delivered" if row in self.sent else "not_sent" for row in self.running + self.dying}
        unfinished = self.unfinished | flying
        return {
            "statistics": {
                "pulled": self.pulled,
                "in_flight": len(flying),
                "ready": len(self.ready),
                "delivered": self.delivered,
                "discarded": self.discarded,
                "unfinished": len(unfinished),
            },
            "unfinished": sorted(unfinished.items()),
            "received": self.received,
            "drained": sorted(filter(None, self.drained)),
            "drains returned": len(self.drained),
            "closes": self.closes,
        }


class SourceError(Exception):
    """What a failing source raises."""


class Real:
    """The same commands on a real stream."""

    def __init__(self, setup: Setup, scripted: Any) -> None:
        self.setup = setup
        self.scripted = scripted
        self.received: dict[int, int | str] = {}
        self.drained: list[list[int]] = []
        self.closes = 0
        self.scopes: dict[tuple[str, int], trio.CancelScope] = {}
        self.supply_in, self.supply_out = trio.open_memory_channel[int](10_000)
        self.supplied = 0

    async def rows(self) -> AsyncIterator[dict[str, Any]]:
        async for row in self.supply_out:
            yield {"i": row}
        if self.setup.fails:
            raise SourceError

    async def play(self, commands: list[Command], expect: Callable[[Command, dict[str, Any]], None]) -> None:
        with self.supply_in, self.supply_out:
            async with (
                open_rollout_stream(
                    self.rows(),
                    self.scripted,
                    max_concurrent=self.setup.max_concurrent,
                    max_resident_tasks=self.setup.max_resident,
                ) as self.stream,
                trio.open_nursery() as self.nursery,
            ):
                for command in commands:
                    self.apply(*command)
                    await wait_all_tasks_blocked()
                    expect(command, self.view())
                for row in self.setup.stubborn:
                    self.scripted.release(row)
                self.nursery.cancel_scope.cancel()

    def apply(self, name: str, argument: Any) -> None:
        mine = getattr(self, f"do_{name}", None)
        if mine is not None:
            mine(argument)
        else:
            getattr(self.scripted, name)(argument)

    def do_supply(self, count: int) -> None:
        for _ in range(count):
            self.supply_in.send_nowait(self.supplied)
            self.supplied += 1

    def do_end_source(self, _: None) -> None:
        self.supply_in.close()

    def do_park(self, consumer: int) -> None:
        self.start("park", consumer, self.receive, consumer)

    def do_drain(self, call: tuple[int, float]) -> None:
        self.start("drain", call[0], self.drain, call[1])

    def do_aclose(self, call: int) -> None:
        self.closes += 1
        self.start("aclose", call, self.aclose)

    def do_cancel_consumer(self, consumer: int) -> None:
        self.scopes["park", consumer].cancel()

    def do_cancel_drain(self, call: int) -> None:
        self.scopes["drain", call].cancel()

    def do_send(self, row: int) -> None:
        self.scripted.attempts[row].mark_sent()

    def do_fail(self, row: int) -> None:
        self.scripted.fail(row, ValueError("no"))

    def do_advance(self, seconds: float) -> None:
        clock = trio.lowlevel.current_clock()
        assert isinstance(clock, MockClock)
        clock.jump(seconds)

    def start(self, kind: str, number: int, call: Callable[..., Any], *arguments: Any) -> None:
        scope = self.scopes[kind, number] = trio.CancelScope()

        async def cancellable() -> None:
            with scope:
                await call(*arguments)

        self.nursery.start_soon(cancellable)

    async def receive(self, consumer: int) -> None:
        try:
            self.received[consumer] = (await self.stream.receive()).row["i"]
        except trio.EndOfChannel:
            self.received[consumer] = END
        except SourceError:
            self.received[consumer] = ERROR

    async def drain(self, grace: float) -> None:
        outcomes: list[RolloutOutcome] = await self.stream.aclose_and_drain(grace)
        self.drained.append([outcome.row["i"] for outcome in outcomes])

    async def aclose(self) -> None:
        await self.stream.aclose()
        self.closes -= 1

    def view(self) -> dict[str, Any]:
        return {
            "statistics": attrs.asdict(self.stream.statistics()),
            "unfinished": [(left.row["i"], str(left.delivery)) for left in self.stream.unfinished()],
            "received": self.received,
            "drained": sorted(filter(None, self.drained)),
            "drains returned": len(self.drained),
            "closes": self.closes,
        }


def play(setup: Setup, commands: list[Command], scripted_class: Any, label: str) -> None:
    """Play the commands on a real stream, and compare it with the model after each."""
    model = Model(setup)
    model.settle()

    def expect(command: Command, view: dict[str, Any]) -> None:
        model.apply(command)
        assert view == model.view(), (label, command, commands)

    real = Real(setup, scripted_class(setup.stubborn))
    try:
        trio.run(real.play, commands, expect, clock=MockClock())
    except SourceError:
        assert model.error_left, label
    else:
        assert not model.error_left, label
    s = real.stream.statistics()
    assert s.pulled == s.delivered + s.discarded + len(real.stream.unfinished())
    assert s.ready == s.in_flight == 0


class Chooser:
    """Chooses commands that make sense to a model, by a function that picks from a list."""

    def __init__(self, setup: Setup) -> None:
        self.model = Model(setup)
        self.commands: list[Command] = []
        self.count = 0

    def do(self, name: str, argument: Any) -> None:
        self.commands.append((name, argument))
        self.model.apply((name, argument))

    def possible(self) -> dict[str, list[Any]]:
        m = self.model
        self.count += 1
        choices: dict[str, list[Any]] = {
            "supply": [] if m.source_ended else [1, 2, 5],
            "end_source": [] if m.source_ended else [None],
            "park": [self.count],
            "cancel_consumer": m.parked,
            "finish": m.running,
            "fail": m.running,
            "send": [row for row in m.running if row not in m.sent],
            "release": m.dying,
            "aclose": [self.count],
            "drain": [(self.count, grace) for grace in (0.0, 1.0, 3.0)],
            "cancel_drain": list(m.drains),
            "advance": [1.0, 2.0],
        }
        return {name: arguments for name, arguments in choices.items() if arguments}


WEIGHTS = {"supply": 3, "park": 5, "finish": 6, "fail": 2, "aclose": 0.4, "drain": 0.8, "end_source": 0.3}


@pytest.mark.parametrize("block", range(8))
def test_seeded_schedules_agree_with_the_model(block: int, scripted_with: Any) -> None:
    """250 random schedules per block: at every standstill the stream is exactly where the model says."""
    for seed in range(block * 250, block * 250 + 250):
        choose = random.Random(seed)
        bound = [None, 1, 2, 4]
        setup = Setup(
            choose.choice(bound),
            choose.choice(bound),
            frozenset(row for row in range(60) if choose.random() < 0.2),
            choose.random() < 0.3,
        )
        chooser = Chooser(setup)
        for _ in range(choose.randrange(5, 40)):
            possible = chooser.possible()
            names = list(possible)
            name = choose.choices(names, [WEIGHTS.get(name, 1) for name in names])[0]
            chooser.do(name, choose.choice(possible[name]))
        play(setup, chooser.commands, scripted_with, f"seed {seed}")


def test_a_state_machine_agrees_with_the_model(scripted_with: Any) -> None:
    """Hypothesis looks for a schedule in which stream and model differ, and would show the shortest."""

    class Machine(RuleBasedStateMachine):
        chooser: Chooser

        @initialize(
            concurrent=st.none() | st.integers(1, 3),
            resident=st.none() | st.integers(1, 4),
            stubborn=st.frozensets(st.integers(0, 6)),
            fails=st.booleans(),
        )
        def begin(self, concurrent: int | None, resident: int | None, stubborn: frozenset[int], fails: bool) -> None:
            self.chooser = Chooser(Setup(concurrent, resident, stubborn, fails))

        def choose(self, data: st.DataObject, name: str) -> None:
            arguments = self.chooser.possible().get(name)
            if arguments:
                self.chooser.do(name, data.draw(st.sampled_from(arguments)))

        @rule(data=st.data(), name=st.sampled_from(["supply", "park", "finish", "fail", "send"]))
        def go_on(self, data: st.DataObject, name: str) -> None:
            self.choose(data, name)

        @rule(data=st.data(), name=st.sampled_from(["cancel_consumer", "cancel_drain", "release", "advance"]))
        def disturb(self, data: st.DataObject, name: str) -> None:
            self.choose(data, name)

        @precondition(lambda self: self.chooser.model.pulled)
        @rule(data=st.data(), name=st.sampled_from(["drain", "aclose", "end_source"]))
        def stop(self, data: st.DataObject, name: str) -> None:
            self.choose(data, name)

        def teardown(self) -> None:
            if hasattr(self, "chooser"):
                play(self.chooser.model.setup, self.chooser.commands, scripted_with, "state machine")

    run_state_machine_as_test(
        Machine,
        settings=settings(
            max_examples=150,
            stateful_step_count=30,
            deadline=None,
            suppress_health_check=list(HealthCheck),
            derandomize=True,
            database=None,
        ),
    )
