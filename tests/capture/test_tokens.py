"""Exact tokens across turns: put together, masked with a reason, retired once taken."""

from __future__ import annotations

import random

import pytest
import trio

from gym_trio.capture import (
    Captured,
    MaskReason,
    MismatchKind,
    TokenCall,
    TokenStore,
    check_mask_fraction,
    record_of_captures,
    record_of_result,
    record_tokens,
    training_arrays,
)
from gym_trio.errors import RunError


def tokens(prompt, generation, log_probs=None):
    values = [-0.5] * len(generation) if log_probs is None else log_probs
    return {"prompt_token_ids": prompt, "generation_token_ids": generation, "generation_log_probs": values}


def message(text, **more):
    part = {"type": "output_text", "text": text}
    return {"type": "message", "role": "assistant", "content": [part], **more}


RESULT = {"type": "function_call_output", "call_id": "c", "output": "x"}


def row(*output, **more):
    return {"_ng_rollout_id": "0-0", "reward": 0.75, "response": {"output": list(output)}, **more}


def test_two_turns_are_one_sequence() -> None:
    """Prompt and tool results are masked out, generated tokens in, with the log probabilities of their own call."""
    first = {
        "type": "function_call",
        "call_id": "c",
        "name": "f",
        "arguments": "{}",
        **tokens([1, 2], [3, 4], [-1.0, -2.0]),
    }
    second = message("b", **tokens([1, 2, 3, 4, 5, 6], [7], [-0.25]))
    arrays = training_arrays(row(first, RESULT, second))
    assert arrays.token_ids.tolist() == [1, 2, 3, 4, 5, 6, 7]
    assert arrays.loss_mask.tolist() == [0, 0, 1, 1, 0, 0, 1]
    assert arrays.log_probs.tolist() == [0, 0, -1, -2, 0, 0, -0.25]
    assert arrays.reward == 0.75
    assert [memoryview(part).format for part in (arrays.token_ids, arrays.loss_mask, arrays.log_probs)] == [
        "q",
        "b",
        "f",
    ]


@pytest.mark.parametrize("seed", range(30))
def test_any_conversation_comes_out_as_it_went_in(seed) -> None:
    """The sequence of a generated conversation is its last prompt and answer; all generated tokens are unmasked."""
    chance = random.Random(seed)
    sequence, calls, mask, probs = [], [], [], []
    for _ in range(chance.randint(1, 8)):
        read = [chance.randrange(50_000) for _ in range(chance.randint(0, 20))]
        wrote = [chance.randrange(50_000) for _ in range(chance.randint(0, 10))]
        values = [-float(chance.randint(0, 8)) for _ in wrote]
        calls.append(TokenCall([*sequence, *read], wrote, values))
        sequence += read + wrote
        mask += [0] * len(read) + [1] * len(wrote)
        probs += [0.0] * len(read) + values
    record = record_tokens(calls)
    (one,) = record.sequences
    assert not record.mask_sample
    assert (one.token_ids.tolist(), one.loss_mask.tolist(), one.log_probs.tolist()) == (sequence, mask, probs)
    assert len(one) == len(sequence)


def test_a_generation_that_was_tokenized_again_is_named() -> None:
    """The position, both tokens and the kind of the mismatch are known, and the sample is masked for it."""
    result = row(message("a", **tokens([1, 2], [3, 4])), RESULT, message("b", **tokens([1, 2, 3, 9, 5], [7])))
    record = record_of_result(result)
    (mismatch,) = record.mismatches
    assert (mismatch.call, mismatch.position, mismatch.expected, mismatch.found) == (1, 3, 4, 9)
    assert mismatch.kind is MismatchKind.GENERATION_CHANGED
    assert record.mask_reason is MaskReason.PREFIX_MISMATCH
    assert record.to_row() == {
        "mask_sample": True,
        "mask_reason": "prefix_mismatch",
        "mask_detail": "generation_changed at call 1, token 3: 4 became 9",
    }
    assert training_arrays(result) is None
    assert [len(branch.token_ids) for branch in record.branches(1.0)] == [4, 6]


def test_a_rewritten_context_begins_another_sequence() -> None:
    """A conversation beside the first one, and one that was cut, are told from a changed generation."""
    record = record_tokens(
        [
            TokenCall([1, 2, 3], [4], [-1]),
            TokenCall([8, 9], [5], [-1]),
            TokenCall([1, 2, 3, 4, 6], [7], [-1]),
            TokenCall([1, 2], [9], [-1]),
        ]
    )
    assert [sequence.token_ids.tolist() for sequence in record.sequences] == [[1, 2, 3, 4, 6, 7], [8, 9, 5], [1, 2, 9]]
    assert [(m.call, m.kind) for m in record.mismatches] == [
        (1, MismatchKind.PROMPT_REWRITTEN),
        (3, MismatchKind.PROMPT_REWRITTEN),
    ]
    assert record.mismatches[1].found is None


@pytest.mark.parametrize(
    ("result", "reason"),
    [
        (row(), MaskReason.NO_TOKENS),
        (row(message("a")), MaskReason.NO_TOKENS),
        (row(message("a", **tokens([1], [2])), RESULT, message("b")), MaskReason.MISSING_TOKENS),
        (row(message("a", **tokens([1], [2], [-1.0, -1.0]))), MaskReason.NO_TOKENS),
        (row(message("a", **tokens([1], [2])), mask_sample=True), MaskReason.MASKED_BY_ROLLOUT),
    ],
)
def test_what_cannot_be_built_is_masked_with_a_reason(result, reason) -> None:
    """Missing tokens, tokens without log probabilities and a row that masks itself are never arrays."""
    assert record_of_result(result).mask_reason is reason
    assert training_arrays(result) is None


@pytest.mark.parametrize("wrong", [None, "x", 7, 1.5, True, {}, [None], ["x"], [[1]], [{}], [1, 2, 3, 4, 5]])
@pytest.mark.parametrize("key", ["generation_token_ids", "generation_log_probs"])
def test_tokens_that_are_none_mask_the_sample(key, wrong) -> None:
    """A value that no array can hold, or that is no number to train on, is a call whose tokens are not known."""
    check_masked(key, wrong)


@pytest.mark.parametrize(
    ("key", "wrong"),
    [
        *(("generation_log_probs", [value]) for value in (float("nan"), float("inf"), float("-inf"), -1e300)),
        *(("generation_token_ids", [value]) for value in (1.5, 2**63, 1e30)),
        *(("prompt_token_ids", value) for value in (None, "x", 7, {}, [None], [1.5], [2**63])),
    ],
)
def test_numbers_that_no_token_has_mask_the_sample(key, wrong) -> None:
    """A probability of zero is written as null, minus infinity or NaN: none of them reaches a trainer's loss."""
    check_masked(key, wrong)


def check_masked(key, wrong) -> None:
    good, bad = message("a", **tokens([1], [2])), message("b", **{**tokens([1, 2, 3], [4]), key: wrong})
    result = row(good, RESULT, bad)
    assert record_of_result(result).mask_reason is MaskReason.MISSING_TOKENS
    assert training_arrays(result) is None


@pytest.mark.parametrize("wrong", [None, "x", 1.5, True, [1], {"a": 1}])
def test_a_response_that_is_none_masks_the_sample(wrong) -> None:
    """Rows come from any server: what is no response, and what is no item in one, has no tokens."""
    for result in ({**row(), "response": wrong}, {**row(), "response": {"output": wrong}}, row(wrong)):
        assert record_of_result(result).mask_reason is MaskReason.NO_TOKENS
        assert training_arrays(result) is None


def test_a_row_without_a_reward_has_no_arrays() -> None:
    """There is nothing to train towards."""
    assert training_arrays(row(message("a", **tokens([1], [2]))) | {"reward": None}) is None


def entry(response, server="model", **more):
    return {"api": "responses", "model_ref": {"name": server}, "response": response, "error": None, **more}


def test_tokens_of_an_opaque_agent_come_from_its_captured_calls() -> None:
    """Failed calls are passed over, those of a judge left out, and hidden calls mask the sample."""
    calls = (
        entry({"output": [message("a", **tokens([1], [2]))]}),
        entry(None, error="gone"),
        entry({"output": [message("j", **tokens([7], [7]))]}, server="judge"),
        entry({"output": [message("b", **tokens([1, 2, 3], [4]))]}),
    )
    record = record_of_captures(Captured(calls), rollout_id="0-0", model_server="model")
    assert record.sequences[0].token_ids.tolist() == [1, 2, 3, 4]
    assert not record.mask_sample
    arrays = training_arrays(row(), captured=Captured(calls[:1]))
    assert arrays.token_ids.tolist() == [1, 2]
    hidden = Captured(calls[:1], ({"code": "model_call_capture_incomplete"},))
    assert record_of_captures(hidden).mask_reason is MaskReason.CAPTURE_INCOMPLETE
    left_out = Captured(calls[:1], ({"code": "model_call_payload_left_out"},))
    assert not record_of_captures(left_out).mask_sample


async def test_records_are_retired_once_taken(tmp_path) -> None:
    """A record comes back as it was, to one of many takers, and is then gone."""
    store = TokenStore(tmp_path / "tokens")
    record = record_tokens([TokenCall([1], [2], [-0.5]), TokenCall([9], [3], [-0.25]), None], rollout_id="0-0")
    assert await store.waiting() == ()
    await store.put(record)
    assert await store.waiting() == ("0-0",)
    taken = []

    async def take() -> None:
        taken.append(await store.take("0-0"))

    async with trio.open_nursery() as nursery:
        for _ in range(5):
            nursery.start_soon(take)
    assert [found for found in taken if found is not None] == [record]
    assert await store.take("0-0") is None
    assert list((tmp_path / "tokens").iterdir()) == []
    with pytest.raises(ValueError, match="rollout id"):
        await store.put(record_tokens([]))


async def test_a_token_folder_that_cannot_be_written_is_named(tmp_path) -> None:
    """The error names the folder."""
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match="file"):
        await TokenStore(tmp_path / "file").put(record_tokens([], rollout_id="0-0"))


def test_too_many_masked_samples_end_the_run() -> None:
    """Only above the limit, and only where there is one."""
    check_mask_fraction(5, 10, 0.5)
    check_mask_fraction(10, 10, None)
    check_mask_fraction(0, 0, 0.0)
    with pytest.raises(RunError, match="6 of 10"):
        check_mask_fraction(6, 10, 0.5)
