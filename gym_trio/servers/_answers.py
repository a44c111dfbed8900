"""What a worker process has answered, read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import orjson

from ..errors import RequestRefused, RolloutFailure
from ._failures import failure_from_wire
from ._jobs import Job
from ._worker_home import WorkerFailed

__all__ = ["UNREADABLE", "check_is_of_job", "job_answer", "read_answer"]

UNREADABLE = "gave an answer that cannot be read"


def read_answer(content: bytes) -> dict[str, Any]:
    """What a process has sent: a mapping with one of the keys of `_FORMS` and what that key must have.

    **Errors**: `WorkerFailed` for anything else. What the process has run may have sent it.
    """
    try:
        answer = orjson.loads(content)
    except orjson.JSONDecodeError:
        answer = None
    if isinstance(answer, dict) and isinstance(answer.get("state", ""), str):
        said = [has_its_form(answer[key]) for key, has_its_form in _FORMS.items() if key in answer]
        if said == [True]:
            return answer
    raise WorkerFailed(UNREADABLE)


def _is_refusal(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 2 and type(value[0]) is int and 400 <= value[0] < 600


def _failure(value: Any) -> RolloutFailure | None:
    return failure_from_wire("", 500, orjson.dumps(value))


_FORMS: Mapping[str, Callable[[Any], bool]] = {
    "ready": lambda value: value is True,
    "error": lambda value: isinstance(value, str),
    "answer": lambda value: True,
    "refused": _is_refusal,
    "failure": lambda value: _failure(value) is not None,
}
_OF_JOBS = frozenset({"answer", "refused", "failure"})


def check_is_of_job(answer: Mapping[str, Any]) -> None:
    """**Errors**: `WorkerFailed` for what a process says when it has been set up, and to no job."""
    if _OF_JOBS.isdisjoint(answer):
        raise WorkerFailed(UNREADABLE)


def job_answer(answer: Mapping[str, Any], job: Job) -> Any:
    """The ``answer`` in what a process has said to ``job``, as `read_answer` gives it.

    **Errors**: `RequestRefused` and `RolloutFailure`, where it was one of these.
    """
    if "refused" in answer:
        status, detail = answer["refused"]
        raise RequestRefused(status, detail)
    if "failure" in answer:
        raise _failure(answer["failure"]) or job.failed(UNREADABLE)
    return answer["answer"]
