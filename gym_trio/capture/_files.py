"""Captures on disk: one file of JSON lines for each server and rollout."""

from __future__ import annotations

import logging
import pathlib
import re
import zlib
from collections import defaultdict
from collections.abc import Sequence
from typing import Final

import orjson

from ..errors import RunError
from ..threads import Threads
from ._entry import JSON, Captured, without_keys

__all__ = ["CaptureFolder", "read_captures", "safe_name"]

logger = logging.getLogger("gym_trio.capture")

# Calls without a rollout are kept under this name.
UNATTRIBUTED = "_unattributed"

_READING: Final = Threads()
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]")


def safe_name(rollout_id: str) -> str:
    """A rollout's id as a part of a file's name; no id leads out of the folder."""
    safe = _UNSAFE.sub("_", rollout_id)[:150].lstrip(".")
    return safe if safe == rollout_id else f"{safe}_{zlib.crc32(rollout_id.encode()):08x}"


def file_name(rollout_id: str | None, server: str) -> str:
    """The file of a rollout's calls at ``server``."""
    rollout = UNATTRIBUTED if rollout_id is None else safe_name(rollout_id)
    return f"{rollout}@{_UNSAFE.sub('_', server)[:80]}.jsonl"


class CaptureFolder:
    """Appends captures. Synchronous: it is used from a worker thread, by one batch at a time."""

    def __init__(self, folder: pathlib.Path, max_call_bytes: int, max_total_bytes: int) -> None:
        self._folder = folder
        self._max_call_bytes = max_call_bytes
        self._left_bytes = max_total_bytes
        self._said_full = False
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise RunError(f"model calls cannot be captured in {folder}: {error}") from error

    def append(self, calls: Sequence[tuple[JSON, JSON]]) -> list[JSON | None]:
        """Write each (entry, payload); for each what is missing of it, or ``None``.

        A line is written whole or not at all as far as the system allows: with one call of the system for each file.
        """
        lines: defaultdict[str, bytearray] = defaultdict(bytearray)
        places: list[str] = []
        gaps: list[JSON | None] = []
        for entry, payload in calls:
            line, gap = self._encode(entry, payload)
            name = file_name(entry["rollout_id"], entry["model_ref"]["name"])
            lines[name] += line
            places.append(name)
            gaps.append(gap)
        failed: dict[str, JSON] = {}
        for name, content in lines.items():
            try:
                with (self._folder / name).open("ab", buffering=0) as file:
                    file.write(content)
            except OSError as error:
                logger.error("model calls were not written to %s: %s", self._folder / name, error)
                failed[name] = {"code": "model_call_capture_incomplete", "detail": f"{name} was not written: {error}"}
        return [failed.get(name, gap) for name, gap in zip(places, gaps, strict=True)]

    def _encode(self, entry: JSON, payload: JSON) -> tuple[bytes, JSON | None]:
        whole = without_keys({**entry, **payload})
        line = orjson.dumps(whole, option=orjson.OPT_NON_STR_KEYS, default=str) + b"\n"
        gap: JSON | None = None
        if len(line) > self._max_call_bytes or len(line) > self._left_bytes:
            if len(line) > self._left_bytes and not self._said_full:
                self._said_full = True
                logger.warning("%s is full: further calls are captured without request and response", self._folder)
            gap = {"code": "model_call_payload_left_out", "detail": f"{entry['model_call_id']}: {len(line)} bytes"}
            whole = {**whole, "request": None, "response": None, "left_out_bytes": len(line)}
            line = orjson.dumps(whole, option=orjson.OPT_NON_STR_KEYS, default=str) + b"\n"
        self._left_bytes -= len(line)
        return line, gap


async def read_captures(folder: pathlib.Path, rollout_id: str, *, since: float = 0.0) -> Captured:
    """The calls of a rollout on disk in the order in which they began, with their requests, and the gaps.

    Calls that began before ``since`` (Unix time) are left out: those of an earlier attempt of the same id that an
    interruption cut short. Call `CaptureStore.flush` of every store that writes there first.

    **Cancellation**: the reading thread is left to itself; it changes nothing.
    """
    return await _READING.run(_read, folder, rollout_id, since)


def _read(folder: pathlib.Path, rollout_id: str, since: float) -> Captured:
    calls: list[JSON] = []
    gaps: list[JSON] = []
    stem = file_name(rollout_id, "").removesuffix(".jsonl")
    try:
        paths = sorted(folder.glob(f"{stem}*.jsonl"))
        contents = [(path.name, path.read_bytes()) for path in paths]
    except OSError as error:
        return Captured((), ({"code": "model_call_capture_unreadable", "detail": str(error)},))
    for name, content in contents:
        for number, line in enumerate(content.splitlines(), 1):
            try:
                call = orjson.loads(line)
                if call["started_at"] >= since:
                    calls.append(call)
            except (orjson.JSONDecodeError, KeyError, TypeError) as error:
                code = "model_call_capture_records_unreadable"
                gaps.append({"code": code, "detail": f"{name}:{number}: {error}"})
    return Captured(tuple(sorted(calls, key=lambda call: call["started_at"])), tuple(gaps))
