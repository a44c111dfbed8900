"""Nothing that was read stays: rows and tasks pass by one at a time, whatever their number."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from gym_trio import metrics

Make = Callable[..., dict[str, Any]]

MOST_ALIVE = 2  # the one at hand, and the one that is being made


class Row(dict[str, Any]):
    """A row that can be seen to be gone."""


class Watched:
    """Hands out rows, and sees how many of them are held at once."""

    def __init__(self, make: Callable[[int], dict[str, Any]], count: int) -> None:
        self._make = make
        self._count = count
        self._given: list[weakref.ref[Row]] = []
        self.most = 0
        self.passes = 0

    def alive(self) -> int:
        return sum(reference() is not None for reference in self._given)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        self.passes += 1
        for number in range(self._count):
            row = Row(self._make(number))
            self._given.append(weakref.ref(row))
            self.most = max(self.most, self.alive())
            yield row
            del row


def test_a_profile_holds_no_row_that_it_has_read(make_row: Make) -> None:
    """Neither inputs nor results; the sample of a task is asked for again when its row is made."""
    inputs = Watched(lambda n: make_row(n // 2, n % 2, None, question=f"q{n}"), 40)
    rollouts = Watched(lambda n: make_row(n // 2, n % 2, float(n % 3 == 0), response={"output": ["x"]}), 40)
    asked: list[int] = []

    def input_at(position: int) -> dict[str, Any]:
        asked.append(position)
        return make_row(position // 2, position % 2, None, question=f"q{position}")

    profile = metrics.profile(inputs, rollouts, input_at=input_at)
    gc.collect()
    assert (inputs.alive(), rollouts.alive(), asked) == (0, 0, [])
    assert inputs.most <= MOST_ALIVE
    assert rollouts.most <= MOST_ALIVE
    rows = profile.reward_rows()
    assert next(rows)["sample"]["question"] == "q0"
    assert asked == [0]  # the next is made when it is wanted
    assert [row["sample"]["question"] for row in rows] == [f"q{n}" for n in range(2, 40, 2)]


def test_a_profile_is_the_same_with_and_without_its_inputs_at_hand(make_row: Make) -> None:
    """Where tasks are shared by agents too: each shows its own first input."""
    rows = [
        make_row(t, r, float(t == r), agent_ref={"name": "ab"[r % 2]}, q=(t, r)) for t in range(3) for r in range(4)
    ]
    kept, asked = metrics.profile(rows, rows), metrics.profile(rows, rows, input_at=rows.__getitem__)
    assert list(asked.reward_rows()) == list(kept.reward_rows())
    assert [row["sample"]["q"] for row in kept.reward_rows()][:2] == [(0, 0), (0, 1)]
    assert kept.completion["total_input_rows"] == 6


def _entries(groups: Iterable[Any], **more: Any) -> dict[str, Any]:
    metric = {"mean/reward": 0.5}
    entry = {"agent_ref": {"name": "a"}, "agent_metrics": metric, "key_metrics": metric, "repeat_level_metrics": []}
    return {**entry, "group_level_metrics": groups, **more}


def _group(reward: float) -> Callable[[int], dict[str, Any]]:
    def make(number: int) -> dict[str, Any]:
        infos = [{"_ng_rollout_index": r, "reward": reward} for r in (1, 0)]
        ends = {"min/reward": reward, "max/reward": reward}
        return {
            "_ng_task_index": number,
            "mean/reward": reward,
            **ends,
            "rollout_infos": infos,
            "sample": {"n": number},
        }

    return make


def test_a_comparison_holds_no_task_that_it_has_read() -> None:
    """The tasks of each run pass by once, and the entries of the one are gone before the other's come."""
    before, after = Watched(_group(1.0), 50), Watched(_group(0.0), 50)

    def candidate() -> Iterator[dict[str, Any]]:
        assert (before.passes, before.alive()) == (1, 0)
        yield _entries(after)

    (agent,) = metrics.compare(iter([_entries(before)]), candidate()).comparisons
    gc.collect()
    assert (before.alive(), after.alive(), after.passes) == (0, 0, 1)
    assert max(before.most, after.most) <= MOST_ALIVE
    assert agent.task_counts == (50, 50)
    assert (agent.flips.pass_to_fail_count, agent.flips.net) == (50, -50)
    assert [flip.task_index for flip in agent.flips.flips] == list(range(10))
    assert agent.flips.flips[0].baseline_rewards == [1.0, 1.0]


def test_of_two_rows_for_one_task_the_later_is_compared() -> None:
    """As in a table that is looked up by task; a row without a task is no task, its count of repeats is one."""
    first, again, nobody = _group(1.0)(0), _group(0.0)(0), {"expected_num_rollouts": 7}
    first["rollout_infos"] *= 3
    (agent,) = metrics.compare([_entries([first, again, nobody])], [_entries([_group(1.0)(0)])]).comparisons
    assert agent.task_counts == (1, 1)
    assert agent.repeat_counts == (7, None)
    (flip,) = agent.flips.flips
    assert (flip.direction, flip.baseline_rewards) == ("fail_to_pass", [0.0, 0.0])
