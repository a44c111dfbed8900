"""What a worker process has answered, read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from ..errors import RequestRefused
from ._failures import failure_from_wire
from ._jobs import Job

__all__ = ["job_answer"]


def job_answer(answer: Mapping[str, Any], job: Job) -> Any:
    """The ``answer`` in what a process has said to ``job``.

    **Errors**: `RequestRefused` and `RolloutFailure`, where it was one of these.
    """
    if "refused" in answer:
        status, detail = answer["refused"]
        raise RequestRefused(status, detail)
    if "failure" in answer:
        failure = failure_from_wire("", 500, orjson.dumps(answer["failure"]))
        raise failure or job.failed("gave an answer that cannot be read")
    return answer.get("answer")
