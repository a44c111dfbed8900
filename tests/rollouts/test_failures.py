"""What a rollout raises becomes a failure with a kind, a message, a status and a stage."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import trio

from gym_trio import errors
from gym_trio.errors import Delivery, FailureKind, RolloutFailure
from gym_trio.rollouts import Completed, Drained, Failed, RolloutAttempt, open_rollout_stream


async def outcome_of(run: Callable[[RolloutAttempt], Any], **bounds: Any) -> Completed | Failed | Drained:
    async with open_rollout_stream([{"i": 0}], run, **bounds) as stream:
        return await stream.receive()


def raising(error: BaseException, *, sent: bool = False) -> Callable[[RolloutAttempt], Any]:
    async def run(attempt: RolloutAttempt) -> None:
        if sent:
            attempt.mark_sent()
        raise error

    return run


@pytest.mark.parametrize(
    ("error", "kind", "delivery"),
    [
        (errors.ConnectFailed("x"), "transport_unreachable", "not_sent"),
        (errors.TransportTimeout("x"), "transport_timeout", "possibly_delivered"),
        (errors.PeerDropped("x"), "transport_peer_drop", "possibly_delivered"),
        (errors.ProtocolError("x"), "agent_request_failed", "possibly_delivered"),
        (errors.TransportError("x"), "agent_request_failed", "possibly_delivered"),
        (errors.LocalResourceError("x"), "transport_local_resource", "not_sent"),
        (ValueError("x"), "agent_run_error", "not_sent"),
    ],
)
async def test_each_error_has_its_kind(error: Exception, kind: str, delivery: str) -> None:
    """Transport errors map to transport kinds, anything else to agent_run_error, with the delivery known best."""
    outcome = await outcome_of(raising(error))
    assert isinstance(outcome, Failed)
    assert outcome.failure.kind == kind
    assert outcome.failure.message == "x"
    assert outcome.failure.delivery == delivery
    assert outcome.failure.stage == "agent"
    assert outcome.failure.status is None
    assert outcome.failure.exception_type == type(error).__name__


@pytest.mark.parametrize(("status", "kind"), [(429, "agent_request_failed"), (502, "agent_request_failed")])
@pytest.mark.parametrize("retryable", [True, False])
async def test_statuses_divide_into_retryable_and_not(status: int, kind: str, retryable: bool) -> None:
    """429, 502, 503 and 504 say try again; every other error status is the agent's own error."""
    shown = status if retryable else status + 3
    error = errors.ResponseError("no", server="agent", status=shown, body="why")
    outcome = await outcome_of(raising(error, sent=True))
    assert isinstance(outcome, Failed)
    assert outcome.failure.kind == (kind if retryable else "agent_run_error")
    assert (outcome.failure.status, outcome.failure.body) == (shown, "why")
    assert outcome.failure.delivery is Delivery.POSSIBLY_DELIVERED


async def test_a_rollout_failure_stays_what_it_is() -> None:
    """A RolloutFailure raised by the run is the failure itself, freed of what it was raised from."""
    failure = RolloutFailure("agent:odd", "hm", 418, "verification", True)

    async def run(attempt: RolloutAttempt) -> None:
        try:
            raise KeyError("secret")
        except KeyError as error:
            raise failure from error

    outcome = await outcome_of(run)
    assert isinstance(outcome, Failed)
    assert outcome.failure is failure
    assert failure.__traceback__ is failure.__cause__ is failure.__context__ is None
    with pytest.raises(RolloutFailure) as caught:
        outcome.unwrap()
    assert caught.value is failure


async def test_a_nursery_group_of_one_counts_as_its_exception() -> None:
    """An error that a nursery in the run wrapped is told by its own kind."""

    async def run(attempt: RolloutAttempt) -> None:
        async with trio.open_nursery(), trio.open_nursery():
            raise errors.PeerDropped("gone")

    outcome = await outcome_of(run)
    assert isinstance(outcome, Failed)
    assert outcome.failure.kind is FailureKind.TRANSPORT_PEER_DROP


async def test_several_errors_at_once_are_one_failure() -> None:
    """A group of several exceptions is an agent_run_error that names the group."""
    outcome = await outcome_of(raising(ExceptionGroup("two", [ValueError("a"), KeyError("b")])))
    assert isinstance(outcome, Failed)
    assert outcome.failure.kind is FailureKind.AGENT_RUN_ERROR
    assert outcome.failure.exception_type == "ExceptionGroup"


async def test_messages_are_bounded_and_never_empty() -> None:
    """A long message is cut, a missing one is the exception's name, and one that cannot be made does no harm."""

    class Broken(Exception):
        def __str__(self) -> str:
            raise ValueError("no message")

    long = await outcome_of(raising(ValueError("x" * 5000)))
    empty = await outcome_of(raising(ValueError()))
    broken = await outcome_of(raising(Broken()))
    assert isinstance(long, Failed)
    assert isinstance(empty, Failed)
    assert isinstance(broken, Failed)
    assert len(long.failure.message) == 2000
    assert empty.failure.message == "ValueError"
    assert broken.failure.message == "Broken"


async def test_a_rollout_that_takes_too_long_is_a_timeout(autojump_clock: Any) -> None:
    """rollout_timeout_seconds counts from the start of each rollout and gives kind agent_timeout."""

    async def run(attempt: RolloutAttempt) -> None:
        attempt.mark_sent()
        await trio.sleep_forever()

    outcome = await outcome_of(run, rollout_timeout_seconds=3)
    assert isinstance(outcome, Failed)
    assert outcome.failure.kind is FailureKind.AGENT_TIMEOUT
    assert outcome.failure.delivery is Delivery.POSSIBLY_DELIVERED
    assert outcome.timing.elapsed_seconds == 3
    assert "3 s" in outcome.failure.message


async def test_a_result_in_spite_of_the_timeout_is_a_result(autojump_clock: Any) -> None:
    """A run that returns although its deadline cancelled something inside has completed."""

    async def run(attempt: RolloutAttempt) -> dict[str, Any]:
        with trio.CancelScope(shield=True):
            await trio.sleep(5)
        return {"late": True}

    outcome = await outcome_of(run, rollout_timeout_seconds=3)
    assert isinstance(outcome, Completed)
    assert outcome.unwrap() == (outcome.row, {"late": True})


async def test_an_error_beside_the_timeout_is_still_the_timeout(autojump_clock: Any) -> None:
    """A cleanup that raises together with the deadline's cancellation is told as the timeout it came from."""

    async def run(attempt: RolloutAttempt) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.sleep_forever)
            try:
                await trio.sleep_forever()
            finally:
                raise ValueError("cleanup")

    outcome = await outcome_of(run, rollout_timeout_seconds=3)
    assert isinstance(outcome, Failed)
    assert outcome.failure.kind is FailureKind.AGENT_TIMEOUT


async def test_the_runs_own_deadline_is_an_ordinary_error(autojump_clock: Any) -> None:
    """trio.TooSlowError from a scope of the run's own is an agent_run_error, not the stream's timeout."""

    async def run(attempt: RolloutAttempt) -> None:
        with trio.fail_after(1):
            await trio.sleep_forever()

    outcome = await outcome_of(run, rollout_timeout_seconds=3)
    assert isinstance(outcome, Failed)
    assert outcome.failure.exception_type == "TooSlowError"


async def test_a_stray_cancelled_is_an_error_of_its_rollout() -> None:
    """A Cancelled kept from another scope and raised here fails this rollout and touches no other."""
    kept: list[BaseException] = []

    async def run(attempt: RolloutAttempt) -> dict[str, Any]:
        if attempt.row["i"] == 0:
            with trio.CancelScope() as scope:
                scope.cancel()
                try:
                    await trio.lowlevel.checkpoint()
                except trio.Cancelled as error:
                    kept.append(error)
                    raise
            raise kept.pop()
        return {}

    async with open_rollout_stream([{"i": 0}, {"i": 1}], run) as stream:
        outcomes = [outcome async for outcome in stream]
    assert {type(outcome) for outcome in outcomes} == {Completed, Failed}


def test_a_drained_row_unwraps_to_a_cancelled_failure() -> None:
    """unwrap() of a Drained raises a failure that says nothing was started."""
    with pytest.raises(RolloutFailure) as caught:
        Drained({}, "no time").unwrap()
    assert caught.value.kind == "cancelled"
    assert caught.value.stage == "admission"
    assert caught.value.delivery is Delivery.NOT_STARTED


async def test_all_rollouts_may_fail() -> None:
    """A stream in which every rollout fails delivers every failure and ends by itself."""
    async with open_rollout_stream(({"i": i} for i in range(50)), raising(ValueError("x")), max_concurrent=7) as stream:
        outcomes = [outcome async for outcome in stream]
    assert len(outcomes) == 50
    assert all(isinstance(outcome, Failed) for outcome in outcomes)
    assert stream.statistics().delivered == 50
    assert math.isfinite(outcomes[0].timing.elapsed_seconds)  # type: ignore[union-attr]
