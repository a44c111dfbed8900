"""Answers in a prescribed form: lines of a pattern, or markers that must be there."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from ..errors import RequestRefused
from ..servers import RequestBody, ResourcesServer, Session, output_text
from ._packaged import packaged_rows

__all__ = ["FormatVerification"]


class FormatVerification(ResourcesServer):
    """An answer in a form. Reward 1 when it has it, else 0; what the answer says is not judged.

    A row's ``verifier`` says what to look for. Of ``type`` ``regex`` (or ``inline_prose``): at least
    ``verify_min_matches`` lines (1) in which one of the patterns ``verify_regex`` is found; a line counts once. Of
    ``type`` ``string_match``: each of ``expected_markers`` stands in the text, and whatever the regular expressions
    ``patterns`` find there is one of them.

    Source of the rule: NeMo Gym's ``format_verification``.

    It runs in a process with a time limit, since a pattern may take for ever on a text.
    """

    description = "Answers in a prescribed format"
    domain = "instruction_following"

    @classmethod
    def rows(cls, config: Mapping[str, Any]) -> Iterable[dict[str, Any]]:
        return packaged_rows("format_verification")

    @classmethod
    def row_problems(cls, row: Mapping[str, Any]) -> Iterable[str]:
        kind = (row.get("verifier") or {}).get("type")
        if kind not in _CHECKS:
            yield f"verifier.type: must be one of {', '.join(_CHECKS)}, not {kind!r}"

    def verify(self, session: Session, request: RequestBody) -> dict[str, Any]:
        wanted = request.get("verifier") or {}
        check = _CHECKS.get(str(wanted.get("type")))
        if check is None:
            raise RequestRefused(422, f"verifier.type must be one of {', '.join(_CHECKS)}, not {wanted.get('type')!r}")
        details = check(output_text(request.response), wanted)
        return {"reward": float(details["passed"]), "match_details": details}


def _lines(text: str, wanted: Mapping[str, Any]) -> dict[str, Any]:
    patterns = [re.compile(pattern) for pattern in wanted.get("verify_regex") or ()]
    least = wanted.get("verify_min_matches", 1)
    count = sum(any(pattern.search(line) for pattern in patterns) for line in text.split("\n"))
    return {"matching_lines": count, "min_matches": least, "passed": count >= least}


def _markers(text: str, wanted: Mapping[str, Any]) -> dict[str, Any]:
    expected = list(wanted.get("expected_markers") or ())
    missing = [marker for marker in expected if marker not in text]
    found = [match.group() for pattern in wanted.get("patterns") or () for match in re.finditer(pattern, text)]
    spurious = [marker for marker in found if marker not in expected]
    passed = not missing and not spurious
    return {"expected": expected, "missing": missing, "spurious": spurious, "passed": passed}


_CHECKS = {"regex": _lines, "inline_prose": _lines, "string_match": _markers}
