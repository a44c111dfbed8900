"""The exact tokens of a rollout, put together across its turns, for trainers."""

from __future__ import annotations

import enum
from array import array
from collections.abc import Iterable, Sequence
from typing import Any

import attrs

__all__ = [
    "MaskReason",
    "MismatchKind",
    "PrefixMismatch",
    "TokenCall",
    "TokenRecord",
    "TokenSequence",
    "TrainingArrays",
    "record_tokens",
]


class MaskReason(enum.StrEnum):
    """Why a rollout cannot be trained on as it is."""

    NO_TOKENS = "no_tokens"  # no call has exact tokens
    MISSING_TOKENS = "missing_tokens"  # some calls have them, others not
    PREFIX_MISMATCH = "prefix_mismatch"  # a later prompt does not begin with what was said before
    CAPTURE_INCOMPLETE = "capture_incomplete"  # calls are known to be missing
    MASKED_BY_ROLLOUT = "masked_by_rollout"  # the row itself says `mask_sample`


class MismatchKind(enum.StrEnum):
    """Where a later prompt leaves what was said before."""

    PROMPT_REWRITTEN = "prompt_rewritten"  # within an earlier prompt: another conversation, or an edited one
    GENERATION_CHANGED = "generation_changed"  # within what the model generated: text was tokenized again, or cut


@attrs.frozen
class PrefixMismatch:
    """The prompt of call ``call`` differs from the sequence so far at token ``position``.

    ``expected`` is the token of the sequence there, ``found`` that of the prompt; ``None`` where it ends.
    """

    call: int
    position: int
    kind: MismatchKind
    expected: int | None
    found: int | None


@attrs.frozen
class TokenCall:
    """The exact tokens of one model call."""

    prompt: Sequence[int]
    generation: Sequence[int]
    log_probs: Sequence[float]


@attrs.frozen
class TokenSequence:
    """Tokens in the order in which the model read and wrote them.

    The three arrays are one-dimensional and of equal length n: ``token_ids`` int64; ``loss_mask`` int8, 1 where the
    model generated the token; ``log_probs`` float32, that of each generated token when it was generated, and 0 at
    every other. They support the buffer protocol: ``numpy.frombuffer`` and ``torch.frombuffer`` copy nothing.
    """

    token_ids: array[int]
    loss_mask: array[int]
    log_probs: array[float]

    def __len__(self) -> int:
        return len(self.token_ids)


@attrs.frozen
class TrainingArrays:
    """One rollout as a trainer takes it: a `TokenSequence`'s arrays (each of shape (n,)) and the reward."""

    token_ids: array[int]
    loss_mask: array[int]
    log_probs: array[float]
    reward: float


@attrs.frozen
class TokenRecord:
    """The tokens of one rollout.

    ``sequences`` has one member when every call continued the one before. Each call that did not has begun a new one
    and is named in ``mismatches``. ``mask_reason`` is set when the rollout should not be trained on as one sequence.
    """

    rollout_id: str | None
    sequences: tuple[TokenSequence, ...]
    mismatches: tuple[PrefixMismatch, ...] = ()
    mask_reason: MaskReason | None = None
    detail: str = ""

    @property
    def mask_sample(self) -> bool:
        """Whether the sample is to be left out of training."""
        return self.mask_reason is not None

    def to_row(self) -> dict[str, Any]:
        """What a row says when its tokens cannot be used; empty when they can."""
        if self.mask_reason is None:
            return {}
        return {"mask_sample": True, "mask_reason": str(self.mask_reason), "mask_detail": self.detail}

    def arrays(self, reward: float) -> TrainingArrays | None:
        """The one sequence with its reward, or ``None`` when the sample is masked."""
        if self.mask_sample:
            return None
        (sequence,) = self.sequences
        return TrainingArrays(sequence.token_ids, sequence.loss_mask, sequence.log_probs, reward)

    def branches(self, reward: float) -> tuple[TrainingArrays, ...]:
        """Every sequence for itself, for trainers that can use a rollout whose context was rewritten on the way."""
        return tuple(TrainingArrays(one.token_ids, one.loss_mask, one.log_probs, reward) for one in self.sequences)


@attrs.define(eq=False)
class _Growing:
    """A sequence under construction, and how long its last prompt was."""

    token_ids: array[int] = attrs.Factory(lambda: array("q"))
    loss_mask: array[int] = attrs.Factory(lambda: array("b"))
    log_probs: array[float] = attrs.Factory(lambda: array("f"))
    prompt_length: int = 0

    def extend(self, call: TokenCall) -> None:
        fresh = call.prompt[len(self.token_ids) :]
        self.prompt_length = len(call.prompt)
        self.token_ids.extend(fresh)
        self.loss_mask.extend([0] * len(fresh))
        self.log_probs.extend([0.0] * len(fresh))
        self.token_ids.extend(call.generation)
        self.loss_mask.extend([1] * len(call.generation))
        self.log_probs.extend(call.log_probs)

    def agreement(self, prompt: array[int]) -> int:
        """How many leading tokens ``prompt`` has in common with the sequence."""
        length = min(len(prompt), len(self.token_ids))
        if prompt[:length] == self.token_ids[:length]:
            return length
        return next(at for at in range(length) if prompt[at] != self.token_ids[at])


def record_tokens(
    calls: Iterable[TokenCall | None], *, rollout_id: str | None = None, masked: MaskReason | None = None
) -> TokenRecord:
    """Put the calls of a rollout together, in order. ``None`` is a call whose tokens are not known.

    A call continues the sequence that its whole prompt begins with; of several, the longest.
    """
    growing: list[_Growing] = []
    mismatches: list[PrefixMismatch] = []
    missing = total = 0
    for number, call in enumerate(calls):
        total += 1
        if call is None:
            missing += 1
            continue
        prompt = array("q", call.prompt)
        agreements = [(sequence.agreement(prompt), sequence) for sequence in growing]
        continued = [(length, one) for length, one in agreements if length == len(one.token_ids)]
        if continued:
            max(continued, key=lambda pair: pair[0])[1].extend(call)
            continue
        if agreements:
            length, nearest = max(agreements, key=lambda pair: pair[0])
            mismatches.append(_mismatch(number, length, nearest, prompt))
        fresh = _Growing()
        fresh.extend(call)
        growing.append(fresh)
    reason, detail = _judge(total, missing, mismatches, masked)
    sequences = tuple(TokenSequence(one.token_ids, one.loss_mask, one.log_probs) for one in growing)
    return TokenRecord(rollout_id, sequences, tuple(mismatches), reason, detail)


def _mismatch(number: int, length: int, nearest: _Growing, prompt: array[int]) -> PrefixMismatch:
    rewritten = length < nearest.prompt_length
    return PrefixMismatch(
        call=number,
        position=length,
        kind=MismatchKind.PROMPT_REWRITTEN if rewritten else MismatchKind.GENERATION_CHANGED,
        expected=nearest.token_ids[length] if length < len(nearest.token_ids) else None,
        found=prompt[length] if length < len(prompt) else None,
    )


def _judge(
    total: int, missing: int, mismatches: Sequence[PrefixMismatch], masked: MaskReason | None
) -> tuple[MaskReason | None, str]:
    if masked is not None:
        return masked, ""
    if missing == total:
        return MaskReason.NO_TOKENS, f"none of {total} calls has exact tokens"
    if missing:
        return MaskReason.MISSING_TOKENS, f"{missing} of {total} calls have no exact tokens"
    if mismatches:
        first = mismatches[0]
        said = f"{first.kind} at call {first.call}, token {first.position}: {first.expected} became {first.found}"
        return MaskReason.PREFIX_MISMATCH, said
    return None, ""
