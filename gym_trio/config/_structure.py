"""From a plain mapping to a settings class: `structure`.

cattrs does the work; the hooks here make it strict and make it explain itself. A text is never taken apart into a
list, a number never becomes a text, and a number or a boolean may arrive as text only in its own spelling, which is
how an environment variable brings it. What goes wrong is one `ConfigError` with the file, the key's path and, for an
unknown key, the nearest right one.
"""

from __future__ import annotations

import functools
import pathlib
import types
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Literal, TypeVar, Union, get_args, get_origin

import attrs
import cattrs
import cattrs.gen
from cattrs.errors import AttributeValidationNote, BaseValidationError, ClassValidationError, ForbiddenExtraKeysError

from ..errors import ConfigError
from ._names import suggestion
from ._validators import InvalidSetting, shown

T = TypeVar("T")

# What cattrs, the hooks below, and attrs validators raise. cattrs wraps anything else that a class itself raises.
_PROBLEMS = (BaseValidationError, ValueError, TypeError)
_Path = tuple[str, ...]


class _Wrong(ValueError):
    """What is wrong, and where below the value that was being structured."""

    def __init__(self, message: str, path: _Path = (), *, value: Any = None, says_value: bool = False) -> None:
        super().__init__(message)
        self.message = message
        self.path = path
        self.value = value
        self.says_value = says_value


def structure(
    cls: type[T],
    mapping: Mapping[str, Any],
    *,
    key: str = "",
    file: str | None = None,
    ignore: Collection[str] = (),
) -> T:
    """Make ``cls`` (an attrs class) from ``mapping``.

    ``key`` is the dotted path of the mapping in its configuration and ``file`` where it was read; both go into the
    error. Keys named in ``ignore`` are allowed though ``cls`` does not declare them.

    **Errors**: `ConfigError` for a key that ``cls`` does not have, one that it needs and does not get, a wrong type,
    or a value that one of its validators refuses.
    """
    declared = {field.name for field in attrs.fields(cls)}  # type: ignore[arg-type]  # any attrs class
    kept = {name: value for name, value in mapping.items() if name in declared or name not in ignore}
    try:
        return _converter().structure(kept, cls)
    except _PROBLEMS as error:
        path, message = _explain(error)
        where = ".".join(part for part in (key, *path) if part).replace(".[", "[")
        raise ConfigError(message, file=file, key=where or None) from None


@functools.cache
def _converter() -> cattrs.Converter:
    converter = cattrs.Converter(forbid_extra_keys=True, detailed_validation=True)
    for kind, hook in ((bool, _bool), (int, _int), (float, _float), (str, _str)):
        converter.register_structure_hook(kind, hook)
    converter.register_structure_hook(pathlib.Path, lambda value, _: pathlib.Path(_str(value, str)))
    converter.register_structure_hook_factory(attrs.has, functools.partial(_class_hook, converter))
    converter.register_structure_hook_factory(_is_sequence, functools.partial(_sequence_hook, converter))
    converter.register_structure_hook_factory(_is_mapping, functools.partial(_mapping_hook, converter))
    converter.register_structure_hook_factory(_is_literal, _literal_hook)
    converter.register_structure_hook_factory(_is_union, functools.partial(_union_hook, converter))
    return converter


# One hook per kind of type


def _refuse(value: Any, wanted: str) -> _Wrong:
    return _Wrong(f"must be {wanted}", value=value, says_value=True)


def _bool(value: Any, _: Any) -> bool:
    if isinstance(value, str) and value.lower() in ("true", "false"):
        return value.lower() == "true"
    if not isinstance(value, bool):
        raise _refuse(value, "true or false")
    return value


def _int(value: Any, _: Any) -> int:
    if isinstance(value, str):
        try:
            return int(value)
        except ValueError:
            raise _refuse(value, "a whole number") from None
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise _refuse(value, "a whole number")
    return value


def _float(value: Any, _: Any) -> float:
    if isinstance(value, str):
        try:
            return float(value)
        except ValueError:
            raise _refuse(value, "a number") from None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _refuse(value, "a number")
    return float(value)


def _str(value: Any, _: Any) -> str:
    if not isinstance(value, str):
        quote = " (put it in quotes)" if isinstance(value, int | float) else ""
        raise _refuse(value, f"a text{quote}")
    return value


def _class_hook(converter: cattrs.Converter, cls: type[Any]) -> Callable[[Any, Any], Any]:
    build = cattrs.gen.make_dict_structure_fn(
        cls, converter, _cattrs_forbid_extra_keys=True, _cattrs_detailed_validation=True
    )

    def hook(value: Any, kind: Any) -> Any:
        if isinstance(value, cls):
            return value
        if not isinstance(value, Mapping):
            raise _refuse(value, "a mapping")
        return build(value, kind)

    return hook


def _is_sequence(kind: Any) -> bool:
    return get_origin(kind) in (list, tuple, Sequence) or kind in (list, tuple)


def _sequence_hook(converter: cattrs.Converter, kind: Any) -> Callable[[Any, Any], Any]:
    make = list if (get_origin(kind) or kind) is list else tuple
    inner = (get_args(kind) or (Any,))[0]

    def hook(value: Any, _: Any) -> Any:
        if isinstance(value, str | bytes | Mapping) or not isinstance(value, Sequence):
            raise _refuse(value, "a list")
        return make(_each(converter, ((f"[{n}]", item) for n, item in enumerate(value)), inner))

    return hook


def _is_mapping(kind: Any) -> bool:
    return get_origin(kind) in (dict, Mapping) or kind in (dict, Mapping)


def _mapping_hook(converter: cattrs.Converter, kind: Any) -> Callable[[Any, Any], Any]:
    inner = (get_args(kind) or (str, Any))[1]

    def hook(value: Any, _: Any) -> Any:
        if not isinstance(value, Mapping):
            raise _refuse(value, "a mapping")
        for name in value:
            if not isinstance(name, str):
                raise _Wrong(f"the key {name!r} must be a text (put it in quotes)")
        return dict(zip(value, _each(converter, value.items(), inner), strict=True))

    return hook


def _each(converter: cattrs.Converter, items: Any, kind: Any) -> list[Any]:
    if kind is Any:
        return [item for _, item in items]
    made = []
    for name, item in items:
        try:
            made.append(converter.structure(item, kind))
        except _PROBLEMS as error:
            raise _placed(error, name) from None
    return made


def _placed(error: BaseException, name: str) -> _Wrong:
    path, message = _explain(error, name)
    return _Wrong(message, (name, *path))


def _is_literal(kind: Any) -> bool:
    return get_origin(kind) is Literal


def _literal_hook(kind: Any) -> Callable[[Any, Any], Any]:
    allowed = get_args(kind)

    def hook(value: Any, _: Any) -> Any:
        if value not in allowed:
            near = suggestion(value, [str(one) for one in allowed]) if isinstance(value, str) else ""
            raise _refuse(value, f"one of {', '.join(map(str, allowed))}{near.replace('; known: ', '; it can be ')}")
        return value

    return hook


def _is_union(kind: Any) -> bool:
    return get_origin(kind) in (Union, types.UnionType)


def _union_hook(converter: cattrs.Converter, kind: Any) -> Callable[[Any, Any], Any]:
    optional = type(None) in get_args(kind)
    members = [member for member in get_args(kind) if member is not type(None)]

    def hook(value: Any, _: Any) -> Any:
        if value is None and optional:
            return None
        fitting = [member for member in members if _may_hold(member, value)]
        if not fitting:
            names = [*(_kind_name(member) for member in members), *(["null"] if optional else [])]
            quote = " (put it in quotes)" if str in members and isinstance(value, int | float) else ""
            raise _refuse(value, " or ".join(dict.fromkeys(names)) + quote)
        for member in fitting[:-1]:
            try:
                return converter.structure(value, member)
            except _PROBLEMS:
                continue  # the last member's error is the one that is told
        return converter.structure(value, fitting[-1])

    return hook


def _may_hold(member: Any, value: Any) -> bool:
    """Whether the value has the outer shape of the type, so that an error about its inside makes sense."""
    if member is Any:
        return True
    if attrs.has(member) or _is_mapping(member):
        return isinstance(value, Mapping)
    if _is_sequence(member):
        return isinstance(value, list | tuple)
    if _is_literal(member):
        return not isinstance(value, Mapping | list | tuple)
    if member is str:
        return isinstance(value, str)
    return isinstance(value, str | int | float)


def _kind_name(kind: Any) -> str:
    if attrs.has(kind) or _is_mapping(kind):
        return "a mapping"
    if _is_sequence(kind):
        return "a list"
    if _is_literal(kind):
        return "one of " + ", ".join(map(str, get_args(kind)))
    names = {str: "a text", int: "a whole number", float: "a number", bool: "true or false", pathlib.Path: "a path"}
    return names.get(kind, getattr(kind, "__name__", str(kind)))


# From what was raised to one path and one sentence


def _explain(error: BaseException, name: str = "") -> tuple[_Path, str]:
    if isinstance(error, ClassValidationError):
        return _explain_class(error)
    if isinstance(error, _Wrong):
        told = f", not {shown(name, error.value)}" if error.says_value else ""
        return error.path, error.message + told
    if isinstance(error, InvalidSetting):
        return (error.field,), str(error)
    return (), str(error) or type(error).__name__


def _explain_class(error: ClassValidationError) -> tuple[_Path, str]:
    """The first thing that is wrong with one mapping; an unknown key before all else, for it explains the rest."""
    for one in error.exceptions:
        if isinstance(one, ForbiddenExtraKeysError):
            wrong = sorted(one.extra_fields)[0]
            fields = [field.name for field in attrs.fields(one.cl)]
            return (wrong,), f"unknown key{suggestion(wrong, fields)}"
    first = error.exceptions[0]
    for note in getattr(first, "__notes__", ()):
        if isinstance(note, AttributeValidationNote):
            if isinstance(first, KeyError) and first.args == (note.name,):
                return (note.name,), "must be given"
            path, message = _explain(first, note.name)
            return (note.name, *path), message
    return _explain(first)
