"""Validators for settings classes. Each names the field, the rule and the value, in one line."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import attrs

from ._redact import HIDDEN, is_secret_name, redact

Validator = Callable[[Any, "attrs.Attribute[Any]", Any], None]


class InvalidSetting(ValueError):
    """A value breaks its field's rule. ``field`` is the field's name."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(message)
        self.field = field


def shown(field: str, value: Any) -> str:
    """The value as an error may show it."""
    if is_secret_name(field) and not isinstance(value, int | float | None):
        return HIDDEN
    text = repr(redact(value))
    return text if len(text) <= 80 else text[:77] + "..."


def _number(attribute: attrs.Attribute[Any], value: Any, rule: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidSetting(attribute.name, f"must be {rule}, not {shown(attribute.name, value)}")
    return value


def finite_seconds(instance: Any, attribute: attrs.Attribute[Any], value: Any) -> None:
    """A duration: a number that is finite and not negative."""
    number = _number(attribute, value, "a number of seconds")
    if not math.isfinite(number) or number < 0:
        raise InvalidSetting(attribute.name, f"must be finite and not negative, not {number!r}")


def positive_seconds(instance: Any, attribute: attrs.Attribute[Any], value: Any) -> None:
    """A duration that is finite and above zero."""
    finite_seconds(instance, attribute, value)
    if value == 0:
        raise InvalidSetting(attribute.name, "must be above 0")


def positive_int(instance: Any, attribute: attrs.Attribute[Any], value: Any) -> None:
    """A whole number of at least 1."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise InvalidSetting(
            attribute.name, f"must be a whole number of at least 1, not {shown(attribute.name, value)}"
        )


def not_negative_int(instance: Any, attribute: attrs.Attribute[Any], value: Any) -> None:
    """A whole number of at least 0."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise InvalidSetting(
            attribute.name, f"must be a whole number of at least 0, not {shown(attribute.name, value)}"
        )


def fraction(instance: Any, attribute: attrs.Attribute[Any], value: Any) -> None:
    """A number from 0 to 1."""
    number = _number(attribute, value, "a number from 0 to 1")
    if not 0 <= number <= 1:
        raise InvalidSetting(attribute.name, f"must be from 0 to 1, not {number!r}")


def port_number(instance: Any, attribute: attrs.Attribute[Any], value: Any) -> None:
    """A TCP port; 0 means any free one."""
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= 65535:
        raise InvalidSetting(attribute.name, f"must be a port from 0 to 65535, not {shown(attribute.name, value)}")


def not_empty(instance: Any, attribute: attrs.Attribute[Any], value: Any) -> None:
    """A text or a collection with something in it."""
    if not value:
        raise InvalidSetting(attribute.name, "must not be empty")


def optional(validator: Validator) -> Validator:
    """``validator``, with None allowed."""

    def check(instance: Any, attribute: attrs.Attribute[Any], value: Any) -> None:
        if value is not None:
            validator(instance, attribute, value)

    return check


def one_of(choices: Iterable[str]) -> Validator:
    """One of these texts; an error names the nearest."""
    from ._names import suggestion

    allowed = tuple(choices)

    def check(instance: Any, attribute: attrs.Attribute[Any], value: Any) -> None:
        if value not in allowed:
            raise InvalidSetting(
                attribute.name,
                f"must be one of {', '.join(allowed)}, not {shown(attribute.name, value)}{suggestion(value, allowed)}",
            )

    return check
