"""Output that must be valid against a JSON schema: JSON, YAML, XML, TOML or CSV, or the arguments of a tool call."""

from __future__ import annotations

import csv
import io
import json
import tomllib
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any
from xml.parsers import expat

import attrs

from ..errors import RequestRefused
from ..servers import RequestBody, ResourcesServer, Session, output_text
from ._coerce import coerce_csv, coerce_xml
from ._packaged import packaged_rows
from ._xml import parse_xml

__all__ = ["StructuredOutputs", "StructuredOutputsSettings", "strict"]


@attrs.frozen(kw_only=True)
class StructuredOutputsSettings:
    """The key of a ``structured_outputs`` block: whether texts in XML become what the schema says they are."""

    xml_coerce_types: bool = True


class _Wrong(Exception):
    """The answer is not what the row asks for: a kind of error and what it says."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


class StructuredOutputs(ResourcesServer):
    """Reward 1 for output that is valid against the row's ``schema_str``, made strict; else 0.

    Strict: every object of the schema has all its properties and no others. With ``response_mode: text`` the whole
    text of the response is the document, in the form that ``schema_type`` names (``json``, ``yaml``, ``xml``, ``toml``,
    ``csv``); the texts of XML and CSV are first turned into the types of the schema where they can be. With
    ``tool_call`` the document is the arguments of the only call, which must be of ``tool_name`` where the row has one,
    or what they have under ``tool_payload_key``.

    Source of the rule: NeMo Gym's ``structured_outputs``.
    """

    description = "Documents and tool calls that must be valid against a JSON schema"
    domain = "instruction_following"
    settings_type = StructuredOutputsSettings

    @classmethod
    def rows(cls, config: Mapping[str, Any]) -> Iterable[dict[str, Any]]:
        return packaged_rows("structured_outputs")

    async def verify(self, session: Session, request: RequestBody) -> dict[str, Any]:
        try:
            # Validation of a large document takes a while: the loop must not wait for it.
            await self.in_thread(self._check, request)
        except _Wrong as wrong:
            return {"reward": 0.0, "error_type": wrong.kind, "error_message": str(wrong)[:200]}
        return {"reward": 1.0, "error_type": None, "error_message": None}

    def _check(self, request: RequestBody) -> None:
        kind = request.get("schema_type") or "json"
        if kind not in _PARSERS:
            raise RequestRefused(422, f"schema_type must be one of {', '.join(_PARSERS)}, not {kind!r}")
        if request.get("response_mode") == "tool_call":
            document = _called_with(request)
            schema = _schema(request)
        else:
            text = output_text(request.response)
            if not text.strip():
                raise _Wrong("empty_response", "the response has no text")
            schema = _schema(request)
            document = _parsed(kind, text)
            if kind == "csv":
                document = coerce_csv(document, schema)
            elif kind == "xml" and self.settings.xml_coerce_types:
                document = coerce_xml(document, schema)
        _validate(document, schema)

    def compute_metrics(self, tasks: Sequence[Sequence[dict[str, Any]]]) -> dict[str, Any]:
        """The mean reward for each value of the fields that describe a task."""
        groups: defaultdict[str, list[float]] = defaultdict(list)
        for row in (row for task in tasks for row in task):
            for field, label in _LABELS.items():
                value = row.get(field)
                if value is not None and value != "":
                    name = str(value).lower() if isinstance(value, bool) else value
                    groups[f"mean/reward_{label}{name}"].append(float(row.get("reward") or 0.0))
        return {name: sum(rewards) / len(rewards) for name, rewards in groups.items()}


_LABELS = {"schema_type": "", "problem_type": "", "schema_repr": "repr_"} | {
    name: f"{name}_"
    for name in (
        *("response_mode", "tool_schema_mode", "tool_choice", "parallel_tool_calls", "num_tools", "has_distractors"),
        *("instruction_layout", "instruction_detail_level", "system_instruction_style", "tool_name_style"),
        *("distractor_style", "tool_union_mode"),
    )
}


def _yaml(text: str) -> Any:
    import yaml

    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ValueError(str(error)) from None


_PARSERS: Mapping[str, Callable[[str], Any]] = {
    "json": json.loads,
    "yaml": _yaml,
    "xml": parse_xml,
    "toml": tomllib.loads,
    "csv": lambda text: list(csv.DictReader(io.StringIO(text))),
}


def _parsed(kind: str, text: str) -> Any:
    try:
        return _PARSERS[kind](text)
    except (ValueError, TypeError, OverflowError, RecursionError, csv.Error, expat.ExpatError) as error:
        raise _Wrong("parse_error", f"{type(error).__name__}: {error}") from None


def _schema(request: RequestBody) -> Any:
    try:
        return strict(json.loads(request.get("schema_str") or ""))
    except (ValueError, TypeError) as error:
        raise _Wrong("schema_error", str(error)) from None


def strict(schema: Any) -> Any:
    """The schema with all properties of each object required and no others allowed. Lists in it stay as they are."""
    if not isinstance(schema, dict):
        return schema
    inner = {name: strict(value) for name, value in schema.items()}
    if "properties" in inner:
        inner |= {"required": list(inner["properties"]), "additionalProperties": False}
    return inner


def _called_with(request: RequestBody) -> Any:
    if request.response.get("error") is not None:
        raise _Wrong("api_error", str(request.response["error"]))
    calls = [item for item in request.response.get("output") or () if item.get("type") == "function_call"]
    if len(calls) != 1:
        names = ", ".join(str(call.get("name")) for call in calls) or "none"
        raise _Wrong(
            "multiple_tool_calls" if calls else "missing_tool_call", f"one call is expected, there are: {names}"
        )
    (call,) = calls
    wanted = request.get("tool_name")
    if wanted and call.get("name") != wanted:
        raise _Wrong("wrong_tool_name", f"a call of {wanted!r} is expected, not of {call.get('name')!r}")
    arguments = call.get("arguments")
    try:
        document = json.loads(arguments) if isinstance(arguments, str) else dict(arguments or {})
    except (ValueError, TypeError) as error:
        raise _Wrong("tool_arguments_parse_error", f"{type(error).__name__}: {error}") from None
    key = request.get("tool_payload_key")
    if not key:
        return document
    if not isinstance(document, dict) or key not in document:
        raise _Wrong("missing_tool_payload_key", f"the arguments have no {key!r}")
    return document[key]


def _validate(document: Any, schema: Any) -> None:
    import jsonschema

    try:
        jsonschema.Draft202012Validator.check_schema(schema)
        jsonschema.Draft202012Validator(schema).validate(document)
    except Exception as error:  # noqa: BLE001  a schema of someone else's can make the validator fail in any way
        raise _Wrong("validation_error", f"{type(error).__name__}: {error}") from None
