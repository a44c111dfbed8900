"""`tool`: a method whose signature and docstring are the tool's schema and its argument check."""

from __future__ import annotations

import functools
import inspect
import typing
from collections.abc import Callable, Hashable, Mapping
from typing import Any, TypeVar, cast

import attrs

from ..errors import ConfigError, ToolError

__all__ = ["Tool", "tool", "tools_of"]

F = TypeVar("F", bound=Callable[..., Any])

_MARK = "_gym_trio_tool_name"


def tool(method: F) -> F:
    """Mark a method of a `ResourcesServer` as a tool that the model can call.

    The method is ``async def name(self, session, *, city: str, days: int = 3) -> JSON value``; a plain ``def``, which
    may block, runs in a thread. The annotations (those
    that msgspec knows: numbers, strings, lists, dicts, ``Literal``, ``Optional``, enums, attrs and data classes,
    ``Annotated[..., msgspec.Meta(...)]``) become the JSON schema of the arguments, the docstring the description. A
    call whose arguments do not fit is answered to the model with what is wrong, and the method is not run.

    **Errors**: `ToolError` raised inside goes to the model; anything else fails the rollout.
    """
    setattr(method, _MARK, method.__name__)
    return method


@attrs.frozen
class Tool:
    """One tool of an environment: its wire definition and its checked call."""

    name: str
    description: str
    parameters: Mapping[str, Any]
    method: Callable[..., Any]
    arguments_type: Any
    is_async: bool = True

    @property
    def definition(self) -> dict[str, Any]:
        """The tool in the form of a Responses request's ``tools``."""
        return {
            "type": "function",
            "name": self.name,
            "description": self.description,
            "parameters": dict(self.parameters),
            "strict": True,
        }

    def check(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments as Python values.

        **Errors**: `ToolError` (status 422) that names the argument and what it should be.
        """
        import msgspec

        try:
            checked = msgspec.convert(dict(arguments), self.arguments_type)
        except msgspec.ValidationError as error:
            raise ToolError(f"{self.name}: {error}", status=422) from None
        return {name: getattr(checked, name) for name in self.arguments_type.__struct_fields__}


def tools_of(cls: type[Any]) -> Mapping[str, Tool]:
    """The tools of a server class by name, in the order of their definition.

    **Errors**: `ConfigError` for a method that cannot be a tool: no function, ``*args``, a type without a schema.
    """
    return _tools_of(cast("Hashable", cls))


@functools.cache
def _tools_of(cls: Any) -> Mapping[str, Tool]:
    found = {}
    for base in reversed(cls.__mro__):
        for name, value in vars(base).items():
            if hasattr(value, _MARK):
                found[name] = _make_tool(cls, name, value)
    return found


def _make_tool(cls: type, name: str, method: Callable[..., Any]) -> Tool:
    import msgspec

    where = f"{cls.__name__}.{name}"
    if not inspect.isfunction(method):
        raise ConfigError("a tool must be a method", key=where)
    hints = typing.get_type_hints(method, include_extras=True)
    fields: list[Any] = []
    for parameter in list(inspect.signature(method).parameters.values())[2:]:
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            raise ConfigError("a tool names each of its arguments; * and ** have no schema", key=where)
        kind = hints.get(parameter.name, Any)
        if parameter.default is parameter.empty:
            fields.append((parameter.name, kind))
        else:
            fields.append((parameter.name, kind, parameter.default))
    try:
        arguments_type = msgspec.defstruct(name, fields, forbid_unknown_fields=True, kw_only=True)
        parameters = _inline(msgspec.json.schema(arguments_type))
    except TypeError as error:
        raise ConfigError(f"an argument's type has no JSON schema: {error}", key=where) from None
    return Tool(
        name, inspect.getdoc(method) or "", parameters, method, arguments_type, inspect.iscoroutinefunction(method)
    )


def _inline(schema: dict[str, Any]) -> dict[str, Any]:
    # Models and the Responses API want the object itself at the top, not a reference to a definition.
    definitions = schema.pop("$defs")
    top = dict(definitions.pop(schema["$ref"].rpartition("/")[2]))
    top.pop("title", None)
    return {**top, "$defs": definitions} if definitions else top
