"""What was there before the work is the collector's no more, for as long as the work lasts."""

from __future__ import annotations

import gc
import weakref

from gym_trio.cli._collector import collector_for_rollouts


class Cycle:
    def __init__(self) -> None:
        self.me = self


def test_only_what_came_later_is_looked_at() -> None:
    """An object from before is in no generation; one from the block is. Afterwards both are."""
    before: list[object] = [[]]
    with collector_for_rollouts():
        later: list[object] = [[]]
        seen = {id(thing) for generation in range(3) for thing in gc.get_objects(generation)}
        assert id(before) not in seen
        assert id(later) in seen
    assert gc.get_freeze_count() == 0
    assert any(thing is before for thing in gc.get_objects())


def test_a_cycle_from_the_block_is_collected() -> None:
    """What the work leaves behind is found as ever."""
    with collector_for_rollouts():
        cycle = Cycle()
        gone = weakref.ref(cycle)
        del cycle
        assert gone() is not None
        gc.collect()
        assert gone() is None


def test_it_ends_with_an_error_too() -> None:
    try:
        with collector_for_rollouts():
            raise ValueError
    except ValueError:
        assert gc.get_freeze_count() == 0


def test_it_looks_less_often_and_then_as_before() -> None:
    """Whatever the thresholds were."""
    before = gc.get_threshold()
    try:
        gc.set_threshold(701, 11, 12)
        with collector_for_rollouts():
            assert gc.get_threshold()[0] > 701
            assert gc.isenabled()
        assert gc.get_threshold() == (701, 11, 12)
    finally:
        gc.set_threshold(*before)
