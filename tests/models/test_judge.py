"""A model as judge: bounded, and masked instead of zero when there is no verdict."""

from __future__ import annotations

import pytest

from gym_trio.errors import UsageError
from gym_trio.http import MemoryTransport, ServerClient, open_lifespan
from gym_trio.servers import Judge
from gym_trio.testing import ScriptedModel


def parse(text: str) -> float:
    word = text.split(":")[-1].strip()
    if word not in ("yes", "no"):
        raise ValueError("neither yes nor no")
    return float(word == "yes")


@pytest.fixture
async def ask():
    """Asks a judge with these replies; gives the judgement and the requests that its model got."""

    async def asked(*replies, **options):
        model = ScriptedModel(replies, name="judge_model")
        client = ServerClient()
        async with open_lifespan(model.app, server="judge_model") as state:
            client.register("judge_model", MemoryTransport(model.app, state=state), "http://judge_model")
            judgement = await Judge(client, "judge_model", parse, **options).judge("right?", rollout_id="0-0")
        return judgement, model.calls

    return asked


async def test_a_verdict_is_parsed(ask) -> None:
    """The first answer in the judge's form is the verdict; parameters and the rollout's id go along."""
    judgement, calls = await ask("verdict: yes", parameters={"temperature": 0})
    assert (judgement.verdict, judgement.judge_failed, judgement.verify_fields()) == (1.0, False, {})
    assert (calls[0]["temperature"], calls[0]["input"], calls[0].rollout_id) == (0, "right?", "0-0")


async def test_another_form_is_asked_again(ask) -> None:
    """A judge that rambles gets another chance, and its texts are kept."""
    judgement, calls = await ask("well...", "verdict: no")
    assert judgement.verdict == 0.0
    assert judgement.texts == ("well...", "verdict: no")
    assert len(calls) == 2


async def test_no_verdict_masks_the_sample(ask, caplog) -> None:
    """After its attempts the judge has failed; that is no reward of zero to learn from."""
    judgement, calls = await ask("a", "b", "c", attempts=2)
    assert len(calls) == 2
    fields = judgement.verify_fields()
    assert (fields["mask_sample"], fields["judge_failed"], fields["failure_kind"]) == (True, True, "judge_unparseable")
    assert "neither yes nor no: 'b'" in fields["failure_reason"]
    assert len(caplog.records) == 2


async def test_a_judge_that_does_not_answer_has_failed(ask, caplog) -> None:
    """A server error is tried again within the bound, a refusal is not."""
    judgement, calls = await ask(attempts=3)
    assert len(calls) == 3
    assert judgement.failure_kind == "judge_failed"
    client = ServerClient()
    client.register("judge_model", MemoryTransport(ScriptedModel(["yes"]).app), "http://judge_model")
    unread = await Judge(client, "judge_model", parse, parameters={"tools": 5}).judge([5])  # type: ignore[list-item]
    assert unread.failure_kind == "judge_failed"


def test_a_judge_needs_an_attempt() -> None:
    """Zero attempts would be a verdict without a judge."""
    with pytest.raises(UsageError):
        Judge(ServerClient(), "x", parse, attempts=0)
