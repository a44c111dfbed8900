"""The next step of a terminal agent, in the manner of one of several harnesses."""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import attrs
import jsonschema

from ..errors import RequestRefused
from ..servers import RequestBody, ResourcesServer, Session, output_text
from ._packaged import packaged_rows

__all__ = ["TerminalComparatorSettings", "TerminalMultiHarness", "TerminalMultiHarnessSettings"]

Arguments = Mapping[str, Any]
Found = tuple[str | None, float | None]  # why the two do not agree, or None; how similar they are, where measured


@attrs.frozen(kw_only=True)
class TerminalComparatorSettings:
    """From which similarity on two texts agree, unless a row has its own ``threshold``."""

    string_similarity_threshold: float = 0.9


@attrs.frozen(kw_only=True)
class TerminalMultiHarnessSettings:
    """The key of the block besides the common ones."""

    tool_call_comparator_config: TerminalComparatorSettings = attrs.field(factory=TerminalComparatorSettings)


class TerminalMultiHarness(ResourcesServer):
    """One step of a terminal agent. Reward 1 when it agrees with the row's ``expected_action``, else 0.

    The expected action is a ``message``, a ``function_call`` or a ``function_call_batch``, and so must the response be:
    a call where there are any, whatever is said beside it. A message agrees when it is not blank. A call agrees when
    its arguments are an object that is valid under the declared schema of its tool (``declared_tools``, else the
    row's tools; lists and objects may come as JSON in a text), its tool is the expected one, it has no arguments that
    the expected one has not, and, for the tools that the row's ``harness`` knows, the arguments that matter agree:
    commands, code and queries by similarity, paths and addresses exactly. A batch has as many calls, which are
    compared in the order of tool and arguments.

    Source of the rule: NeMo Gym's ``terminal_multi_harness``.
    """

    description = "The next step of a terminal agent (codex, opencode, stirrup, agent006)"
    domain = "agent"
    settings_type = TerminalMultiHarnessSettings

    @classmethod
    def rows(cls, config: Mapping[str, Any]) -> Iterable[dict[str, Any]]:
        return packaged_rows("terminal_multi_harness")

    def verify(self, session: Session, request: RequestBody) -> dict[str, Any]:
        expected = request.get("expected_action") or {}
        kind = expected.get("type")
        if kind not in ("message", "function_call", "function_call_batch"):
            raise RequestRefused(422, "expected_action must be a message, a function_call or a function_call_batch")
        calls = [item for item in request.response.get("output") or () if item.get("type") == "function_call"]
        text = output_text(request.response)
        made = "function_call_batch" if len(calls) > 1 else "function_call" if calls else "message"
        if made != kind:
            return {"reward": 0.0, "category": "another type of action", "similarity_score": None}
        if made == "message":
            return {"reward": float(bool(text.strip())), "category": "a message", "similarity_score": None}
        wanted = list(expected.get("calls") or ()) if kind == "function_call_batch" else [expected]
        threshold = request.get("threshold")
        if threshold is None:
            threshold = self.settings.tool_call_comparator_config.string_similarity_threshold
        declared = request.get("declared_tools")
        if declared is None:
            declared = (request.get("responses_create_params") or {}).get("tools")
        comparison = _Comparison(request.get("harness") or "generic", threshold, _schemas(declared or ()))
        why, similarity = comparison.compare_all(wanted, calls)
        return {"reward": float(why is None), "category": why or "the expected call", "similarity_score": similarity}


def _schemas(tools: Sequence[Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
    """The schema of each declared tool, in either of the two usual forms."""
    found: dict[str, Mapping[str, Any]] = {}
    for declared in tools:
        function = declared.get("function")
        inner = function if isinstance(function, Mapping) else declared
        name, schema = inner.get("name"), inner.get("parameters")
        if isinstance(name, str) and isinstance(schema, Mapping):
            found[name] = schema
    return found


@attrs.frozen
class _Comparison:
    harness: str
    threshold: float
    schemas: Mapping[str, Mapping[str, Any]]

    def compare_all(self, expected: Sequence[Arguments], made: Sequence[Arguments]) -> Found:
        if len(expected) != len(made):
            return "another number of calls", None
        similarity = None
        for wanted, call in zip(*(sorted(calls, key=_order) for calls in (expected, made)), strict=True):
            why, similarity = self._compare(wanted, call)
            if why is not None:
                return why, similarity
        return None, similarity if len(made) == 1 else None

    def _compare(self, expected: Arguments, made: Arguments) -> Found:
        wanted, given = _decoded(expected.get("arguments")), _decoded(made.get("arguments"))
        if wanted is None or given is None:
            return "arguments that are no JSON object", None
        name = str(made.get("name"))
        schema = self.schemas.get(name)
        if schema is None:
            return "a tool without a schema", None
        given = _unpacked(given, schema)
        if not _is_valid(given, schema):
            return "arguments that are not valid", None
        if name != expected.get("name"):
            return "another tool", None
        if not given.keys() <= wanted.keys():
            return "arguments that are not expected", None
        rule = _RULES.get(self.harness, {}).get(name)
        return rule(wanted, given, self.threshold) if rule else (None, None)


def _order(call: Arguments) -> tuple[str, str]:
    arguments = _decoded(call.get("arguments"))
    shown = str(call.get("arguments")) if arguments is None else json.dumps(arguments, sort_keys=True)
    return str(call.get("name")), shown


def _decoded(arguments: Any) -> dict[str, Any] | None:
    try:
        found = json.loads(arguments)
    except (ValueError, TypeError):
        return None
    return found if isinstance(found, dict) else None


def _unpacked(given: Mapping[str, Any], schema: Mapping[str, Any]) -> dict[str, Any]:
    """``given`` with lists and objects that came as JSON in a text as what the schema wants them to be."""
    properties = schema.get("properties")
    found = dict(given)
    for name, inner in properties.items() if isinstance(properties, Mapping) else ():
        kind = _KINDS.get(str(inner.get("type"))) if isinstance(inner, Mapping) else None
        if kind is not None and isinstance(found.get(name), str):
            try:
                value = json.loads(found[name])
            except ValueError:
                continue
            found[name] = value if isinstance(value, kind) else found[name]
    return found


def _is_valid(given: Mapping[str, Any], schema: Mapping[str, Any]) -> bool:
    try:
        jsonschema.validate(given, schema)
    except (jsonschema.ValidationError, jsonschema.SchemaError):
        return False
    return True


_KINDS: Mapping[str, type] = {"array": list, "object": dict}
Rule = Callable[[Arguments, Arguments, float], Found]


def _similar(key: str, even: Callable[[str], str], *, blank: bool = True) -> Rule:
    """The two texts at ``key`` are similar enough after ``even``; ``blank`` ones may be compared too."""

    def compare(wanted: Arguments, given: Arguments, threshold: float) -> Found:
        texts = [arguments.get(key) for arguments in (wanted, given)]
        if not all(isinstance(text, str) and (blank or text.strip()) for text in texts):
            return f"no {key}", None
        ratio = difflib.SequenceMatcher(None, even(str(texts[0])), even(str(texts[1]))).ratio()
        return (None if ratio >= threshold else f"another {key}"), ratio

    return compare


def _same(*keys: str) -> Rule:
    def compare(wanted: Arguments, given: Arguments, threshold: float) -> Found:
        return next((f"another {key}" for key in keys if wanted.get(key) != given.get(key)), None), None

    return compare


def _command(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n").strip()


def _web(text: str) -> str:
    return text.lower().strip()


def _plan(wanted: Arguments, given: Arguments, threshold: float) -> Found:
    plan = given.get("plan")
    filled = bool(plan.strip()) if isinstance(plan, str) else plan is not None and plan not in ([], {})
    return (None if filled else "no plan"), None


def _result(wanted: Arguments, given: Arguments, threshold: float) -> Found:
    shown = [json.dumps(arguments.get("result"), sort_keys=True) for arguments in (wanted, given)]
    ratio = difflib.SequenceMatcher(None, shown[0], shown[1]).ratio()
    return (None if ratio >= threshold else "another result"), ratio


def _todos(wanted: Arguments, given: Arguments, threshold: float) -> Found:
    expected, made = wanted.get("todos"), given.get("todos")
    if not isinstance(expected, list) or not isinstance(made, list) or len(expected) != len(made):
        return "other todos", None
    for pair in zip(expected, made, strict=True):
        if not all(isinstance(each, Mapping) for each in pair):
            return "other todos", None
        if any(pair[0].get(key) != pair[1].get(key) for key in ("status", "priority")):
            return "other todos", None
    return None, None


def _edit(wanted: Arguments, given: Arguments, threshold: float) -> Found:
    if given.get("oldString") == given.get("newString"):
        return "an edit that changes nothing", None
    return _same("filePath", "replaceAll")(wanted, given, threshold)


def _address(wanted: Arguments, given: Arguments, threshold: float) -> Found:
    urls = [arguments.get("url") for arguments in (wanted, given)]
    if not all(isinstance(url, str) and url for url in urls):
        return "no url", None
    return (None if _web(str(urls[0])) == _web(str(urls[1])) else "another url"), None


def _finish(wanted: Arguments, given: Arguments, threshold: float) -> Found:
    for arguments in (wanted, given):
        paths = arguments.get("paths")
        if not isinstance(arguments.get("reason"), str) or not arguments["reason"]:
            return "no reason", None
        if not isinstance(paths, list) or not paths or not all(isinstance(path, str) for path in paths):
            return "no paths", None
    if sorted(path.strip() for path in wanted["paths"]) != sorted(path.strip() for path in given["paths"]):
        return "other paths", None
    return _similar("reason", _web)(wanted, given, threshold)


# What matters of a call, by harness and tool. A tool that is not here agrees by its name and its keys.
_RULES: Mapping[str, Mapping[str, Rule]] = {
    "codex": {"exec_command": _similar("cmd", _command), "update_plan": _plan},
    "agent006": {"execute_python": _similar("code", str, blank=False), "return_result": _result},
    "opencode": {
        "bash": _similar("command", _command),
        "todowrite": _todos,
        "read": _same("filePath"),
        "write": _same("filePath"),
        "edit": _edit,
        "glob": _same("pattern", "path"),
        "grep": _same("pattern", "path", "include"),
        "webfetch": _same("url", "format"),
        "skill": _same("name"),
        "task": _same("subagent_type"),
    },
    "stirrup": {
        "code_exec": _similar("cmd", _command),
        "web_search": _similar("query", _web, blank=False),
        "fetch_web_page": _address,
        "finish": _finish,
    },
}
