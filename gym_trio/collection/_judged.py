"""``retry_invalid_judge_responses``: results that no judge has judged, taken back so that they are made again.

Some verifiers write a judge's unusable answer as a result with a reward of zero, marked ``invalid_judge_response``. On
request such results become failed attempts, which are tried again like any other.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ._jsonl import JsonlSink, dump_line, read_jsonl, replacing
from ._keys import ATTEMPT, key_of
from ._ledger import FAILURE_CLASS, TERMINAL
from ._paths import RunFiles
from ._records import identity_in

MARK = "invalid_judge_response"
CLASS = "judge_invalid"


def take_back_unjudged(files: RunFiles) -> int:
    """Move marked results to the failures; how many there were.

    Killed on the way, it leaves a result in both files at most, and the next call ends what this one began.
    """
    if not files.output.exists():
        return 0
    unjudged = {number for number, row in read_jsonl(files.output) if row.get(MARK) is True}
    if not unjudged:
        return 0
    there = {_attempt(row) for _, row in _failures(files) if row.get(FAILURE_CLASS) == CLASS}
    with JsonlSink(files.failures, fsync=True) as failures:
        for number, row in read_jsonl(files.output):
            if number in unjudged and _attempt(row) not in there:
                failures.append_nowait(_failed(row))
    with replacing(files.output, fsync=True) as kept:
        for number, row in read_jsonl(files.output):
            if number not in unjudged:
                kept.write(dump_line(row))
    return len(unjudged)


def _failures(files: RunFiles) -> Any:
    return read_jsonl(files.failures) if files.failures.exists() else ()


def _attempt(row: Mapping[str, Any]) -> tuple[int | None, int]:
    return key_of(row), row.get(ATTEMPT) or 0


def _failed(row: Mapping[str, Any]) -> dict[str, Any]:
    perf = row.get("ng_perf")
    latency = perf.get("total_latency_ms") if isinstance(perf, Mapping) else None
    said = "the judge's response was not one, and the result that was made of it was taken back"
    return {
        **identity_in(row),
        FAILURE_CLASS: CLASS,
        TERMINAL: False,
        "_ng_failure_type": "InvalidJudgeResponse",
        "_ng_failure_message": said,
        "_ng_failure_http_status": None,
        "_ng_failure_response_body": None,
        "_ng_failure_stage": "verification",
        "_ng_failure_partial_response": row.get("response"),
        "failure_kind": "judge_unparseable",
        "failure_reason": said,
        **({"elapsed_seconds": latency / 1000} if isinstance(latency, int | float) else {}),
    }
