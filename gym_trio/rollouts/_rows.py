"""What a row says about itself: its rollout id, and the row that its next attempt has."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ..errors import RowError

ROLLOUT_ID_KEY = "_ng_rollout_id"
TASK_INDEX_KEY = "_ng_task_index"
ROLLOUT_INDEX_KEY = "_ng_rollout_index"
ATTEMPT_INDEX_KEY = "_ng_attempt_index"

_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_ATTEMPT_SUFFIX = re.compile(r"-a0*([1-9][0-9]*)\Z")


def attempt_index(row: Mapping[str, Any], line: int | None = None) -> int:
    """The row's ``_ng_attempt_index``, 0 where it has none. Raises `RowError` if it is not a count."""
    attempt = row.get(ATTEMPT_INDEX_KEY)
    if attempt is None:
        return 0
    if not isinstance(attempt, int) or isinstance(attempt, bool) or attempt < 0:
        raise RowError(f"{ATTEMPT_INDEX_KEY} must be 0 or a positive integer, not {attempt!r}", line=line)
    return attempt


def rollout_id(row: Mapping[str, Any], position: int, prefix: str = "") -> str:
    """The id under which the row pulled as number ``position``, from 0, runs.

    The row's own ``_ng_rollout_id`` if it has one, else ``"{_ng_task_index}-{_ng_rollout_index}"`` if it has both, else
    ``"{prefix}{position}-0"``; an attempt index of 1 or more adds ``"-a{attempt}"``. An id that already ends in the
    suffix of its own attempt, as the row of an outcome does, stays as it is; any other with such a suffix is refused,
    for it would pass as another rollout's attempt. Ids by position are unique within a stream; streams of one gym have
    prefixes that keep theirs apart.

    **Errors**: `RowError`, which counts rows from 1, for an id outside ``[A-Za-z0-9][A-Za-z0-9._-]*``.
    """
    given, line = row.get(ROLLOUT_ID_KEY), position + 1
    attempt = attempt_index(row, line)
    if given is None:
        task, repeat = row.get(TASK_INDEX_KEY), row.get(ROLLOUT_INDEX_KEY)
        base = f"{prefix}{position}-0" if task is None or repeat is None else f"{task}-{repeat}"
    elif isinstance(given, str):
        base = given
    else:
        raise RowError(f"{ROLLOUT_ID_KEY} must be a string, not {given!r}", line=line)
    if not _ID.fullmatch(base):
        raise RowError(f"the rollout id {base!r} is not of the form {_ID.pattern}", line=line)
    suffix = _ATTEMPT_SUFFIX.search(base)
    if suffix is None:
        return f"{base}-a{attempt}" if attempt else base
    if int(suffix[1]) != attempt:
        raise RowError(f"the rollout id {base!r} ends like attempt {suffix[1]} of another rollout", line=line)
    return base


def next_attempt(row: Mapping[str, Any]) -> dict[str, Any]:
    """The row to send for another try of the same rollout: a copy with ``_ng_attempt_index`` one higher.

    Give it the row of an outcome or of an `Unfinished`. The copy keeps the rollout's base id, so that its id is that of
    the first attempt plus ``-a{n}``, whatever place the copy has in its next stream.
    """
    again = dict(row)
    attempt = attempt_index(row)
    given = again.get(ROLLOUT_ID_KEY)
    if attempt and isinstance(given, str):
        again[ROLLOUT_ID_KEY] = _ATTEMPT_SUFFIX.sub("", given)
    again[ATTEMPT_INDEX_KEY] = attempt + 1
    return again
