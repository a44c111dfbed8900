"""`tool`: a method whose signature and docstring are the tool's schema and its argument check."""

from __future__ import annotations

import functools
import inspect
import typing
from collections.abc import Callable, Hashable, Mapping
from typing import Any, TypeVar, cast, overload

import attrs
import msgspec

from ..errors import ConfigError, ToolError

__all__ = ["Tool", "tool", "tools_of"]

F = TypeVar("F", bound=Callable[..., Any])

_MARK = "_gym_trio_tool"

# Routes of an environment that are no tools: a model must neither see its reward nor end its session.
NO_TOOLS = frozenset({"aggregate_metrics", "close_session", "mcp", "reset", "seed_session", "step", "verify"})


@overload
def tool(method: F) -> F: ...
@overload
def tool(*, isolated: bool | None = None) -> Callable[[F], F]: ...
def tool(method: F | None = None, *, isolated: bool | None = None) -> F | Callable[[F], F]:
    """Mark a method of a `ResourcesServer` as a tool that the model can call: ``@tool`` or ``@tool(isolated=...)``.

    The method is ``async def name(self, session, *, city: str, days: int = 3) -> JSON value``, or a plain ``def``. The
    annotations (those that msgspec knows: numbers, strings, lists, dicts, ``Literal``, ``Optional``, enums, attrs and
    data classes, ``Annotated[..., msgspec.Meta(...)]``) become the JSON schema of the arguments, the docstring the
    description. A call whose arguments do not fit is answered to the model with what is wrong, and the method is not
    run.

    An ``async def`` runs on the server's loop and must not block. A plain ``def`` may: it is *isolated*, in a process
    from a small pool. Whatever it does there, hang, crash, end its process, take memory, fails its rollout alone. It
    works on a copy of the session's state, which pickle must be able to carry, and on an instance of its own of the
    class, made from ``name`` and ``config``: what it has changed in the state comes back, what it has changed on
    ``self`` does not. Programs that it leaves running end with the server; those of a class made inside a function,
    whose calls are forked one by one, with the call. While it runs, the other tools of that session wait.
    ``isolated=True`` treats an ``async def`` so; ``isolated=False`` runs a plain one in a thread of the server, on the
    state itself and beside the others, where a crash (``os._exit``, a fault in C) takes the server and all of its
    rollouts along and a hang cannot be ended.

    **Errors**: `ToolError` raised inside goes to the model; anything else fails the rollout.
    """

    def mark(method: F) -> F:
        setattr(method, _MARK, _Mark(inspect.iscoroutinefunction(method), isolated))
        return method

    return mark if method is None else mark(method)


@attrs.frozen
class _Mark:
    """What `tool` leaves on a method."""

    is_async: bool
    isolated_by_choice: bool | None

    @property
    def isolated(self) -> bool:
        return not self.is_async if self.isolated_by_choice is None else self.isolated_by_choice


@attrs.frozen
class Tool:
    """One tool of an environment: its wire definition and its checked call."""

    name: str
    description: str
    parameters: Mapping[str, Any]
    method: Callable[..., Any]
    arguments_type: Any
    is_async: bool = True
    isolated: bool = False  # carried out in a process of its own

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
        try:
            checked = msgspec.convert(dict(arguments), self.arguments_type)
        except msgspec.ValidationError as error:
            raise ToolError(f"{self.name}: {error}", status=422) from None
        return msgspec.structs.asdict(checked)


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
                found[name] = _make_tool(cls, name, value, getattr(value, _MARK))
    return found


def _make_tool(cls: type, name: str, method: Callable[..., Any], mark: _Mark) -> Tool:
    where = f"{cls.__name__}.{name}"
    if not inspect.isfunction(method):
        raise ConfigError("a tool must be a method", key=where)
    if name in NO_TOOLS or _is_servers_own(cls, name):
        raise ConfigError("the server has something of that name itself; a tool must have another", key=where)
    try:
        hints = typing.get_type_hints(method, include_extras=True)
    except (NameError, TypeError, AttributeError) as error:
        raise ConfigError(f"its annotations cannot be read: {error}", key=where) from None
    fields: list[Any] = []
    for parameter in _arguments_of(method, hints, where):
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
    except (TypeError, NameError, AttributeError) as error:  # what msgspec finds when it looks into a type
        raise ConfigError(f"an argument's type has no JSON schema: {error}", key=where) from None
    doc = inspect.getdoc(method) or ""
    return Tool(name, doc, parameters, method, arguments_type, mark.is_async, mark.isolated)


def _is_servers_own(cls: type, name: str) -> bool:
    """Would a tool of that name take the place of what the server's base classes do?"""
    return any(
        name in vars(base) and not hasattr(vars(base)[name], _MARK)
        for base in cls.__mro__
        if base.__module__.startswith("gym_trio.servers.")
    )


def _arguments_of(method: Any, hints: Mapping[str, Any], where: str) -> list[inspect.Parameter]:
    """The parameters after ``self`` and the session. **Errors**: `ConfigError` when the session is not among them."""
    parameters = list(inspect.signature(method).parameters.values())
    second = parameters[1] if len(parameters) > 1 else None
    if second is None or second.kind is not second.POSITIONAL_OR_KEYWORD or _is_argument(second, hints):
        told = f", not {second}" if second is not None else ""
        raise ConfigError(
            f"a tool takes self and then the session{told}: def {method.__name__}(self, session, ...)", key=where
        )
    return parameters[2:]


def _is_argument(parameter: inspect.Parameter, hints: Mapping[str, Any]) -> bool:
    # No session is one of these, and a tool whose first argument is taken for the session would never get it.
    return parameter.name != "session" and hints.get(parameter.name) in (str, int, float, bool)


def _inline(schema: dict[str, Any]) -> dict[str, Any]:
    # Models and the Responses API want the object itself at the top, not a reference to a definition.
    definitions = schema.pop("$defs")
    top = dict(definitions.pop(schema["$ref"].rpartition("/")[2]))
    top.pop("title", None)
    return {**top, "$defs": definitions} if definitions else top
