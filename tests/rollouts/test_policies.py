"""Policies for trainers: until a deadline, until a count, per group of repeats."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import trio

from gym_trio.errors import Delivery, FailureKind, RolloutFailure, UsageError
from gym_trio.rollouts import (
    Drained,
    Failed,
    RolloutAttempt,
    RolloutOutcome,
    RolloutStream,
    Timing,
    Unfinished,
    next_attempt,
    open_rollout_stream,
    rows_to_send_again,
    take_groups,
    take_until_count,
    take_until_deadline,
)

Balanced = Callable[[RolloutStream], None]


async def timed(attempt: RolloutAttempt) -> dict[str, Any]:
    attempt.mark_sent()
    await trio.sleep(attempt.row["seconds"])
    if attempt.row.get("fails"):
        raise ValueError("no")
    return {}


def lasting(*seconds: float) -> list[dict[str, Any]]:
    return [{"seconds": one} for one in seconds]


def group_rows(groups: dict[int, list[float]]) -> list[dict[str, Any]]:
    return [
        {"_ng_task_index": task, "_ng_rollout_index": repeat, "seconds": seconds}
        for task, durations in groups.items()
        for repeat, seconds in enumerate(durations)
    ]


def seconds(outcomes: Any) -> list[float]:
    return [outcome.row["seconds"] for outcome in outcomes]


async def test_until_a_deadline(autojump_clock: Any, balanced: Balanced) -> None:
    """What was received before the deadline is the batch; the rest stays in the stream."""
    async with open_rollout_stream(lasting(5, 1, 3, 9), timed) as stream:
        taken = await take_until_deadline(stream, trio.current_time() + 4)
        assert (seconds(taken.batch), taken.ended) == ([1, 3], False)
        taken = await take_until_deadline(stream, trio.current_time() + 100)
        assert (seconds(taken.batch), taken.ended) == ([5, 9], True)
    balanced(stream)


async def test_until_a_count(autojump_clock: Any, balanced: Balanced) -> None:
    """Exactly so many are taken, fewer only if the stream ends or the deadline passes."""
    async with open_rollout_stream(lasting(5, 1, 3, 9), timed) as stream:
        assert seconds((await take_until_count(stream, 2)).batch) == [1, 3]
        assert (await take_until_count(stream, 0)).batch == ()
        taken = await take_until_count(stream, 2, deadline=trio.current_time() + 3)
        assert (seconds(taken.batch), taken.ended) == ([5], False)
        taken = await take_until_count(stream, 2)
        assert (seconds(taken.batch), taken.ended) == ([9], True)
    balanced(stream)
    with pytest.raises(UsageError, match="count"):
        await take_until_count(stream, -1)


@pytest.mark.parametrize("policy", ["count", "groups"])
async def test_a_cancelled_policy_leaves_what_it_took(autojump_clock: Any, policy: str) -> None:
    """Outcomes taken before a cancellation are in the caller's own list."""
    into: list[RolloutOutcome] = []
    async with open_rollout_stream(group_rows({0: [1, 2, 50]}), timed) as stream:
        with trio.move_on_after(10):
            if policy == "count":
                await take_until_count(stream, 3, into=into)
            else:
                await take_groups(stream, 9, into=into)
        assert seconds(into) == [1, 2]
        into += await stream.aclose_and_drain(grace_seconds=100)
        assert seconds(into) == [1, 2, 50]


@pytest.mark.parametrize("index", [{}, {"_ng_task_index": None}])
async def test_rows_without_a_task_are_no_groups(autojump_clock: Any, index: dict[str, Any]) -> None:
    """Of an endless source too, the first one is told at once; nothing is lost, and what was not taken stays."""
    endless = ({**index, "seconds": number} for number in itertools.count(1))
    into: list[RolloutOutcome] = []
    async with open_rollout_stream(endless, timed, max_concurrent=4) as stream:
        with pytest.raises(UsageError, match=r"the row of 0-0 has no _ng_task_index: give the 2 rows of each task"):
            await take_groups(stream, 2, groups=1, into=into)
        assert seconds(into) == [1]
        assert seconds((await take_until_count(stream, 1)).batch) == [2]


async def test_an_existing_list_is_added_to(autojump_clock: Any) -> None:
    """`into` may hold outcomes of before: the count and the batch are of this call."""
    into: list[RolloutOutcome] = []
    async with open_rollout_stream(lasting(1, 2, 3), timed) as stream:
        await take_until_count(stream, 1, into=into)
        taken = await take_until_count(stream, 1, into=into)
        assert (seconds(taken.batch), seconds(into)) == ([2], [1, 2])


async def test_groups_that_are_complete(autojump_clock: Any, balanced: Balanced) -> None:
    """A group is settled by its k-th outcome; what comes later of it is late; the call returns with enough groups."""
    rows = group_rows({0: [5, 6, 7], 1: [1, 2, 9], 2: [3, 8, 20]})
    async with open_rollout_stream(rows, timed) as stream:
        taken = await take_groups(stream, 2, groups=2)
        assert [(group.key, seconds(group.outcomes), group.complete) for group in taken.groups] == [
            (1, [1, 2], True),
            (0, [5, 6], True),
        ]
        assert seconds(taken.batch) == [1, 2, 5, 6]
        assert [(group.key, seconds(group.outcomes)) for group in taken.open] == [(2, [3])]
        assert not taken.ended
        rest = await take_groups(stream, 2, after=taken)
        assert [(group.key, seconds(group.outcomes)) for group in rest.groups] == [(2, [3, 8])]
        assert seconds(rest.late) == [7, 9, 20]
        assert rest.ended
    balanced(stream)


async def test_a_group_is_cut_at_its_own_quantile(autojump_clock: Any) -> None:
    """With 3 of 4 outcomes after 4 s, a group waits until 6 s; slower groups wait longer."""
    rows = group_rows({0: [2, 3, 4, 6.5], 1: [4, 6, 8, 11], 2: [1, 1, 2, 2.5]})
    async with open_rollout_stream(rows, timed) as stream:
        taken = await take_groups(stream, 4, groups=2, quantile=0.75)
        assert trio.current_time() == 6
        assert [(group.key, group.complete) for group in taken.groups] == [(2, True), (0, False)]
        rest = await take_groups(stream, 4, quantile=0.75, after=taken)
        assert [(group.key, group.complete, len(group.completed)) for group in rest.groups] == [(1, True, 4)]
        assert seconds(rest.late) == [6.5]


async def test_what_finished_before_the_cutoff_counts_however_late_it_is_received(autojump_clock: Any) -> None:
    """A trainer that was busy past a cutoff still gets every outcome that finished before it, and none after."""
    rows = group_rows({0: [2, 2, 3, 3.5]})
    async with open_rollout_stream(rows, timed) as stream:
        await trio.sleep(10)
        taken = await take_groups(stream, 4, quantile=0.5)
        assert sorted(seconds(taken.batch)) == [2, 2, 3]
        assert seconds(taken.late) == [3.5]


async def test_a_groups_time_counts_from_its_first_start(autojump_clock: Any) -> None:
    """One after the other, two outcomes by 4 s make a cutoff of 6 s, whenever the second was started."""
    async with open_rollout_stream(group_rows({0: [2, 2, 1.5, 1]}), timed, max_concurrent=1) as stream:
        taken = await take_groups(stream, 4, quantile=0.5)
        assert seconds(taken.batch) == [2, 2, 1.5]
        assert seconds(taken.late) == [1]


@pytest.mark.parametrize("partial", ["keep", "drop"])
async def test_partial_groups_are_kept_or_dropped(autojump_clock: Any, partial: Any) -> None:
    """At the end of the stream open groups are partial: among the groups, or set aside with rows to send again."""
    rows = group_rows({0: [1, 2], 1: [3]})
    async with open_rollout_stream(rows, timed) as stream:
        taken = await take_groups(stream, 2, partial=partial)
    kept = [(group.key, group.complete) for group in taken.groups]
    assert kept == ([(0, True), (1, False)] if partial == "keep" else [(0, True)])
    assert [group.key for group in taken.dropped] == ([] if partial == "keep" else [1])
    assert [row["_ng_attempt_index"] for row in taken.send_again] == ([] if partial == "keep" else [1])


async def test_groups_until_a_deadline(autojump_clock: Any) -> None:
    """At the deadline the open groups stay open, and their outcomes are in the record."""
    rows = group_rows({0: [1, 2, 50]})
    async with open_rollout_stream(rows, timed) as stream:
        taken = await take_groups(stream, 3, deadline=trio.current_time() + 10)
        assert (taken.groups, seconds(taken.open[0].outcomes), taken.ended) == ((), [1, 2], False)


async def test_failures_and_drained_rows_belong_to_their_groups(autojump_clock: Any) -> None:
    """Every outcome counts, so a group all of whose rows have ended is never waited for."""
    rows = [{"_ng_task_index": 0, "seconds": 1, "fails": True}, *group_rows({0: [2], 1: [1]})]
    bounds = {"max_concurrent": 1, "dispatch_budget_seconds": 1.0, "drain_margin_seconds": 0.5}
    async with open_rollout_stream(rows, timed, **bounds) as stream:  # type: ignore[arg-type]
        taken = await take_groups(stream, 2, quantile=0.5)
    assert [(len(group.outcomes), group.complete) for group in taken.groups] == [(2, True), (1, False)]
    assert [type(outcome) for outcome in taken.batch] == [Failed, Drained, Drained]


async def test_rows_without_a_task_are_groups_of_their_own(autojump_clock: Any) -> None:
    """Rows without a task index are never taken for repeats of each other; any other key may be given."""
    async with open_rollout_stream(lasting(1, 2), timed) as stream:
        assert [len(group.outcomes) for group in (await take_groups(stream, 1)).groups] == [1, 1]
    async with open_rollout_stream(lasting(1, 2), timed) as stream:
        taken = await take_groups(stream, 2, key=lambda row: "all")
        assert [(group.key, len(group.outcomes)) for group in taken.groups] == [("all", 2)]


@pytest.mark.parametrize(
    "wrong", [{"size": 0}, {"quantile": 0}, {"quantile": 1.1}, {"stretch": 0.5}, {"groups": 0}, {"partial": "maybe"}]
)
async def test_a_wrong_argument_is_named_before_anything_is_taken(scripted: Any, wrong: dict[str, Any]) -> None:
    """An argument that makes no sense is a UsageError."""
    async with open_rollout_stream([{"i": 0}], scripted) as stream:
        with pytest.raises(UsageError, match=next(iter(wrong))):
            await take_groups(stream, **{"size": 2, **wrong})
        assert stream.statistics().delivered == 0


async def test_the_errors_of_the_source_pass_through(scripted: Any) -> None:
    """A policy raises what the stream raises, and what it took is in the caller's list."""

    def rows() -> Any:
        yield {"i": 0}
        raise OSError("source")

    scripted.finish(0)
    into: list[RolloutOutcome] = []
    async with open_rollout_stream(rows(), scripted) as stream:
        with pytest.raises(OSError, match="source"):
            await take_until_count(stream, 5, into=into)
    assert len(into) == 1


def failed(row: dict[str, Any], **kind: Any) -> Failed:
    return Failed(row, RolloutFailure(FailureKind.AGENT_RUN_ERROR, "no", **kind), Timing(0, 0, 0))


def test_rows_to_send_again() -> None:
    """Rows that may have reached an agent get the next attempt index, others keep theirs, terminal ones stay out."""
    row = {"_ng_rollout_id": "0-0"}
    outcomes = [
        failed(row),
        failed(row, delivery=Delivery.NOT_SENT),
        failed(row, terminal=True),
        Drained(row, "late"),
    ]
    unfinished = [
        Unfinished(row, Delivery.NOT_STARTED),
        Unfinished(row, Delivery.NOT_SENT),
        Unfinished(row, Delivery.POSSIBLY_DELIVERED),
        Unfinished("no row", Delivery.NOT_STARTED),
    ]
    again = rows_to_send_again(outcomes, unfinished)
    assert [one.get("_ng_attempt_index") for one in again] == [1, None, None, None, None, 1]
    assert row == {"_ng_rollout_id": "0-0"}
    assert again[0] == next_attempt(row)


async def test_a_trainers_steps_lose_and_double_no_row(autojump_clock: Any) -> None:
    """Step after step, what was cut is sent again with its next attempt, until every row has completed once."""
    left = group_rows({task: [1 + (7 * task + repeat) % 5 for repeat in range(4)] for task in range(20)})
    names: set[str] = set()
    done: list[tuple[int, int]] = []
    steps = 0
    while left:
        steps += 1
        async with open_rollout_stream(left, timed, max_concurrent=8) as stream:
            taken = await take_until_deadline(stream, trio.current_time() + 6)
            batch = [*taken.batch, *await stream.aclose_and_drain()]
            for outcome in batch:
                assert outcome.row["_ng_rollout_id"] not in names
                names.add(outcome.row["_ng_rollout_id"])
            done += [(outcome.row["_ng_task_index"], outcome.row["_ng_rollout_index"]) for outcome in batch]
            pulled = stream.statistics().pulled
            left = rows_to_send_again(batch, stream.unfinished()) + left[pulled:]
    assert steps > 3
    assert sorted(done) == sorted((task, repeat) for task in range(20) for repeat in range(4))
