"""A session's state on its way to a worker process and back."""

from __future__ import annotations

import base64
import io
import pickle
import sys
from typing import Any

__all__ = ["UNPICKLABLE", "state_from", "state_to", "what_cannot_go"]

UNPICKLABLE = (pickle.PicklingError, TypeError, AttributeError, RecursionError)

_MISSING = object()

# What a state may be made of besides its own classes: data that does nothing when it is made.
_PLAIN = {
    "builtins": {"bytearray", "complex", "frozenset", "object", "range", "set", "slice"},
    "collections": {"Counter", "OrderedDict", "defaultdict", "deque"},
    "datetime": {"date", "datetime", "time", "timedelta", "timezone"},
    "decimal": {"Decimal"},
    "fractions": {"Fraction"},
    "numpy": {"dtype", "ndarray"},
    "numpy._core.multiarray": {"_reconstruct", "scalar"},
    "numpy._core.numeric": {"_frombuffer"},
    "numpy.core.multiarray": {"_reconstruct", "scalar"},
    "pathlib": {"PosixPath", "PurePosixPath", "Path"},
    "random": {"Random"},
    "uuid": {"UUID"},
    "zoneinfo": {"ZoneInfo"},
}


def state_to(state: Any) -> bytes:
    """What is in ``state``, pickled: items of a container, else its attributes, as `object.__getstate__` gives them.

    **Errors**: those of pickle, for what cannot be handed to another process.
    """
    return pickle.dumps(_contents(state))


def what_cannot_go(state: Any) -> str:
    """Which part of ``state`` `state_to` has failed for, and why."""
    contents = _contents(state)
    named = contents if isinstance(contents, dict) else getattr(state, "__dict__", {})
    for name, value in named.items():
        try:
            pickle.dumps(value)
        except UNPICKLABLE as error:
            return f"its {name!r}: {error}"
    return "one of its parts cannot be pickled"


def _contents(state: Any) -> Any:
    for kind in (dict, list, set):
        if isinstance(state, kind):
            return kind(state)
    return state.__getstate__()


def state_from(encoded: str, state: Any, server: Any) -> None:
    """Give ``state`` what `state_to` has found in another process; it stays the object that it is.

    The process may have run what nobody has checked, so only plain data comes through, and instances of classes that
    are in ``state`` already or belong to the module of the environment or of the state's class.

    **Errors**: `pickle.UnpicklingError` that names what is neither.
    """
    known = _Types()
    known.dump(_contents(state))
    modules = {type(server).__module__, type(state).__module__} - {"builtins"}
    found = _Reader(base64.b64decode(encoded), modules, known.types).load()
    if isinstance(state, dict | set):
        state.clear()
        state.update(found)
    elif isinstance(state, list):
        state[:] = found
    elif hasattr(state, "__setstate__"):
        state.__setstate__(found)
    else:
        _set_attributes(state, found)


def _set_attributes(state: Any, found: Any) -> None:
    plain, slots = found if isinstance(found, tuple) else (found, None)
    if hasattr(state, "__dict__"):
        vars(state).clear()
        vars(state).update(plain or {})
    for name, value in (slots or {}).items():
        object.__setattr__(state, name, value)


class _Types(pickle.Pickler):
    """Sees which classes a state is made of."""

    def __init__(self) -> None:
        super().__init__(io.BytesIO())
        self.types: set[type] = set()

    def persistent_id(self, value: Any) -> None:
        self.types.add(type(value))


class _Reader(pickle.Unpickler):
    def __init__(self, encoded: bytes, modules: set[str], types: set[type]) -> None:
        super().__init__(io.BytesIO(encoded))
        self._modules = modules
        self._types = types

    def find_class(self, module: str, name: str) -> Any:
        if module == "__mp_main__":  # what a program's own main module is called in a worker process
            module = "__main__"
        if name in _PLAIN.get(module, ()):
            return super().find_class(module, name)
        found = super().find_class(module, name) if module in sys.modules else _MISSING
        if isinstance(found, type) and (found in self._types or found.__module__ in self._modules):
            return found
        raise pickle.UnpicklingError(f"{module}.{name} is no part of the session's state")
