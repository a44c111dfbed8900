"""What numbers of settings may be, with errors that name the setting."""

from __future__ import annotations

import attrs

from ..errors import UsageError

__all__ = ["at_least_one", "none_or_one", "not_negative"]


def not_negative(instance: object, attribute: attrs.Attribute[float], value: float) -> None:
    if not value >= 0:  # NaN too
        raise UsageError(f"{attribute.name} must not be negative, it is {value!r}")


def at_least_one(instance: object, attribute: attrs.Attribute[int], value: int) -> None:
    if value < 1:
        raise UsageError(f"{attribute.name} must be at least 1, it is {value!r}")


def none_or_one(instance: object, attribute: attrs.Attribute[int | None], value: int | None) -> None:
    if value is not None and value < 1:
        raise UsageError(f"{attribute.name} must be at least 1 or None, it is {value!r}")
