"""`TokenStore`: keeps token records until a trainer has taken them."""

from __future__ import annotations

import pathlib
import uuid
from array import array
from typing import Any

import orjson
import trio

from ..errors import RunError
from ._files import safe_name
from ._tokens import MaskReason, MismatchKind, PrefixMismatch, TokenRecord, TokenSequence

__all__ = ["TokenStore"]

SUFFIX = ".tokens.json"


class TokenStore:
    """One file for each rollout in ``folder``, written whole or not at all, gone once it is taken.

    Reading and writing are done in worker threads. **Cancellation**: a write that has begun is finished.

    **Errors**: `RunError` when the folder cannot be written.
    """

    def __init__(self, folder: pathlib.Path) -> None:
        self._folder = folder

    async def put(self, record: TokenRecord) -> None:
        """Keep ``record``; one of the same rollout is replaced."""
        if record.rollout_id is None:
            raise ValueError("a token record without a rollout id cannot be found again")
        await trio.to_thread.run_sync(self._write, self._path(record.rollout_id), record)

    async def take(self, rollout_id: str) -> TokenRecord | None:
        """The record of a rollout, which is then retired; ``None`` when there is none. Only one taker gets it."""
        return await trio.to_thread.run_sync(self._take, self._path(rollout_id))

    async def waiting(self) -> tuple[str, ...]:
        """The rollouts whose records nobody has taken."""
        return await trio.to_thread.run_sync(self._list)

    def _path(self, rollout_id: str) -> pathlib.Path:
        return self._folder / f"{safe_name(rollout_id)}{SUFFIX}"

    def _write(self, path: pathlib.Path, record: TokenRecord) -> None:
        unfinished = path.with_suffix(".part")
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            unfinished.write_bytes(orjson.dumps(_to_json(record)))
            unfinished.replace(path)
        except OSError as error:
            raise RunError(f"token records cannot be written to {self._folder}: {error}") from error

    def _take(self, path: pathlib.Path) -> TokenRecord | None:
        # Renamed first: of two takers only one finds the file.
        taken = path.with_suffix(f".taken-{uuid.uuid4().hex}")
        try:
            path.rename(taken)
        except FileNotFoundError:
            return None
        content = taken.read_bytes()
        taken.unlink()
        return _from_json(orjson.loads(content))

    def _list(self) -> tuple[str, ...]:
        names = sorted(path.name for path in self._folder.glob(f"*{SUFFIX}"))
        return tuple(name.removesuffix(SUFFIX) for name in names)


def _to_json(record: TokenRecord) -> dict[str, Any]:
    return {
        "rollout_id": record.rollout_id,
        "sequences": [
            {name: getattr(sequence, name).tolist() for name in ("token_ids", "loss_mask", "log_probs")}
            for sequence in record.sequences
        ],
        "mismatches": [
            {
                "call": mismatch.call,
                "position": mismatch.position,
                "kind": str(mismatch.kind),
                "expected": mismatch.expected,
                "found": mismatch.found,
            }
            for mismatch in record.mismatches
        ],
        "mask_reason": record.mask_reason and str(record.mask_reason),
        "detail": record.detail,
    }


def _from_json(form: dict[str, Any]) -> TokenRecord:
    return TokenRecord(
        form["rollout_id"],
        tuple(
            TokenSequence(array("q", one["token_ids"]), array("b", one["loss_mask"]), array("f", one["log_probs"]))
            for one in form["sequences"]
        ),
        tuple(PrefixMismatch(**{**one, "kind": MismatchKind(one["kind"])}) for one in form["mismatches"]),
        MaskReason(form["mask_reason"]) if form["mask_reason"] else None,
        form["detail"],
    )
