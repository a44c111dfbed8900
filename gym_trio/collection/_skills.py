"""``skills.path``: a folder of agent skills, stamped on every row of a run by name and content."""

from __future__ import annotations

import hashlib
import os
import pathlib
from typing import Any

from ..errors import UsageError

_MARK = "SKILL.md"


def skills_ref(folder: str | os.PathLike[str]) -> dict[str, Any]:
    """The ``skills_ref`` of a row: where the skills are, what they are called, and a hash of all that they say.

    **Errors**: `UsageError` when the folder is missing or holds no skill.
    """
    path = pathlib.Path(folder)
    if not path.is_dir():
        raise UsageError(f"{path}: there is no such folder of skills (skills.path)")
    marks = sorted(path.glob(f"*/{_MARK}"))
    if not marks:
        raise UsageError(f"{path}: holds no skill; a skill is a folder with a {_MARK} (skills.path)")
    digest = hashlib.sha256()
    for file in sorted(one for mark in marks for one in mark.parent.rglob("*") if one.is_file()):
        digest.update(str(file.relative_to(path)).encode() + b"\0" + file.read_bytes() + b"\0")
    return {
        "path": str(path.resolve()),
        "hash": digest.hexdigest(),
        "skills": [{"name": mark.parent.name} for mark in marks],
    }
