"""Structured documents: do they parse, and have they what was asked for?"""

from __future__ import annotations

import codecs
import contextlib
import csv
import io
import itertools
import json
import re
import tomllib
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any
from xml.parsers.expat import ExpatError

from ..servers import RequestBody, ResourcesServer, Session, output_text
from ._packaged import packaged_rows
from ._xml import parse_xml

__all__ = ["StructEval", "code_in", "has_path"]

_MARKED = r"<\|BEGIN_CODE\|>[ \t]*\n?(.*?)(?:<\|END_CODE\|>|$)"
_FENCED = r"```[^\n]*[ \t]*\n(.*?)(?:```|$)"
_EITHER = re.compile(f"(?:{_MARKED})|(?:{_FENCED})", re.DOTALL | re.IGNORECASE)
_FENCE = re.compile(_FENCED, re.DOTALL | re.IGNORECASE)
_MOST_DEPTH = 1000  # far beyond what Python lets the parser of YAML descend
_STEP = re.compile(r"\[[^\]]*\]|(?:`[^`]*`?|[^.\[`])+")


class StructEval(ResourcesServer):
    """A document in JSON, YAML, TOML, XML or CSV. The reward is 0.2 for parsing and 0.8 for what it has.

    A row has ``output_type`` and ``raw_output_metric``, a list of paths: names with dots between, ``[n]`` for an entry
    of a list, ``*`` for any, names with dots in back quotes, ``@name`` for an attribute in XML, and ``csv::name`` for
    a column. The document is the last thing that the reply marks as code, between ``<|BEGIN_CODE|>`` and
    ``<|END_CODE|>`` or in a fence (a fence within the marks is taken off), else all of it; ``\\n`` and other escapes in
    it are undone first. An empty document does not parse. Of the 0.8 it earns the share of the paths that exist; the
    reward is rounded to two places.

    It runs in a process with a time limit, since the document may be made to parse for ever.

    Source of the rule: NeMo Gym's ``structeval``, for types that are not rendered.
    """

    description = "Structured documents with the parts that were asked for"
    domain = "instruction_following"

    @classmethod
    def rows(cls, config: Mapping[str, Any]) -> Iterable[dict[str, Any]]:
        return packaged_rows("structeval")

    @classmethod
    def row_problems(cls, row: Mapping[str, Any]) -> Iterable[str]:
        if str(row.get("output_type", "")).lower() not in _PARSERS:
            yield f"output_type: must be one of {', '.join(_PARSERS)}, not {row.get('output_type')!r}"
        if not isinstance(row.get("raw_output_metric"), list):
            yield "raw_output_metric: must be a list of paths"

    def verify(self, session: Session, request: RequestBody) -> dict[str, Any]:
        text = output_text(request.response)
        paths = [str(path) for path in request.get("raw_output_metric") or ()]
        kind = str(request.get("output_type") or "").lower()
        document, error = _parsed(code_in(text), kind) if text.strip() else (None, "empty_response")
        keys = sum(has_path(document, path) for path in paths) / len(paths) if paths and error is None else 0.0
        named = sum(path.lower() in text.lower() for path in paths) / len(paths) if paths else 0.0
        return {
            "reward": round(0.2 * (error is None) + 0.8 * keys, 2),
            "render_score": float(error is None),
            "key_validation_score": keys,
            "raw_output_score": named,
            "error_type": error and error.partition(":")[0],
            "error_message": error,
        }

    def compute_metrics(self, tasks: Sequence[Sequence[dict[str, Any]]]) -> dict[str, Any]:
        """Means of the scores, and of the reward by type of output, of input and by name of the task."""
        values: dict[str, list[float]] = defaultdict(list)
        for row in (row for task in tasks for row in task):
            reward, kind = float(row.get("reward") or 0), row.get("output_type", "unknown")
            values[f"reward_output_{kind}"].append(reward)
            values[f"reward_input_{row.get('input_type', 'unknown')}"].append(reward)
            values[f"reward_{row.get('task_name', 'unknown')}"].append(reward)
            for score in ("render_score", "key_validation_score"):
                values[score].append(float(row.get(score) or 0))
                values[f"{score}_{kind}"].append(float(row.get(score) or 0))
        return {f"mean/{name}": sum(each) / len(each) for name, each in values.items()}


def code_in(text: str) -> str:
    """The document in ``text``: see `StructEval`."""
    text = text.replace("&lt;", "<").replace("&gt;", ">").replace("<think>\n\n</think>\n\n", "")
    with contextlib.suppress(UnicodeDecodeError):
        # Signs beyond ASCII come out of this as the bytes of their UTF-8; paths that have such signs are not found.
        text = codecs.decode(text, "unicode_escape")
    marked = _EITHER.search(text)
    code = (marked[1] or marked[2] or "") if marked else text
    fenced = _FENCE.search(text)
    return (fenced[1] if fenced else code).strip()


def _parsed(code: str, kind: str) -> tuple[Any, str | None]:
    parse = _PARSERS.get(kind)
    if parse is None:
        return None, f"unsupported_type: {kind}"
    try:
        document = parse(code)
    except (ValueError, TypeError, AttributeError, LookupError, RecursionError, csv.Error, ExpatError) as error:
        return None, f"parse_error: {type(error).__name__}: {error!s:.200}"
    return (document, None) if document else (None, "parse_error: the document is empty")


def _yaml(code: str) -> Any:
    import yaml

    if _depth(code) > _MOST_DEPTH:
        # The parser would come to the same end, after a time that grows with the square of the depth.
        raise RecursionError("maximum recursion depth exceeded")
    try:
        return yaml.safe_load(code)
    except yaml.YAMLError as error:
        raise ValueError(str(error)) from error


def _depth(code: str) -> int:
    """How deep its brackets go, those in quotes counted too."""
    return max(itertools.accumulate(1 if sign in "[{" else -1 for sign in re.findall(r"[\[\]{}]", code)), default=0)


def _csv(code: str) -> Any:
    reader = csv.DictReader(io.StringIO(code))
    return {"csv_headers": reader.fieldnames, "csv_rows": list(reader)}


_PARSERS: Mapping[str, Callable[[str], Any]] = {
    "json": json.loads,
    "yaml": _yaml,
    "xml": parse_xml,
    "toml": tomllib.loads,
    "csv": _csv,
}


def has_path(document: Any, path: str) -> bool:
    """Is there something at ``path``? **Errors**: `ValueError` for a bracket that is not closed."""
    if path.startswith("csv::"):
        return isinstance(document, dict) and path[5:] in (document.get("csv_headers") or [])
    steps = [step if step.startswith("[") else step.replace("`", "") for step in _STEP.findall(path)]
    if any(step.startswith("[") and not step.endswith("]") for step in steps) or path.rfind("[") > path.rfind("]"):
        raise ValueError(f"a bracket is not closed in the path {path}")
    return _reaches(document, steps)


def _reaches(node: Any, steps: Sequence[str]) -> bool:
    if not steps:
        return True
    step, rest = steps[0], steps[1:]
    if step == "*":
        return isinstance(node, list) and any(_reaches(entry, rest) for entry in node)
    if step.startswith("["):
        number = int(step[1:-1]) if step[1:-1].strip().isdecimal() else -1
        return isinstance(node, list) and 0 <= number < len(node) and _reaches(node[number], rest)
    if not isinstance(node, dict):
        return False
    for name in (step, step[1:]) if step.startswith("@") else (step,):
        if name in node:
            return _reaches(node[name], rest)
    return False
