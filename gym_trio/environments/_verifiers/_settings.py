"""The keys of a ``verifiers`` block, and how its children are started."""

from __future__ import annotations

import importlib.util
import os
import pathlib
import shutil
import struct
import sys
from collections.abc import Mapping
from typing import Any

import attrs
import orjson

from ...config import InvalidSetting, finite_seconds, not_empty, optional, positive_int, positive_seconds
from ...errors import ConfigError, MissingExtraError

__all__ = ["HEAD", "VerifiersSettings", "check_python", "child_command", "frame"]

HEAD = struct.Struct("!Q")  # the length of what follows it
SPLITS = ("eval", "train")

# The folder comes last and leaves again, so that nothing in it can stand in for another module.
_BOOT = (
    "import sys; sys.path.append(sys.argv[1]); from vf_child import main; "
    "sys.path.remove(sys.argv[1]); main(int(sys.argv[2]))"
)


def _a_split(instance: Any, attribute: attrs.Attribute[Any], value: str | None) -> None:
    if value is not None and value not in SPLITS:
        raise InvalidSetting(attribute.name, f"must be {' or '.join(SPLITS)}, not {value!r}")


@attrs.frozen(kw_only=True)
class VerifiersSettings:
    """The keys of a ``verifiers`` block besides the common ones.

    ``env_id`` is the environment: the name of an installed package or of a module, as ``verifiers`` takes it.
    ``env_args`` are the arguments of its ``load_environment``; for a taskset of ``verifiers.v1`` the keys of its
    ``[env]`` configuration. ``split`` is the dataset that rows come from, ``eval`` or ``train``; unset, the
    environment's own choice for evaluations. ``num_examples`` bounds the rows.

    ``python`` is another interpreter, of a virtual environment that has ``verifiers`` and the environment;
    ``search_path`` are folders that are searched for modules first. ``processes`` children share the rollouts, each
    of which may run many at once. A child loads the environment within ``load_timeout_seconds``; a rollout that is
    cancelled in it ends within ``cancel_timeout_seconds``, else the child is killed with all that runs in it.
    """

    env_id: str = attrs.field(validator=not_empty)
    env_args: dict[str, Any] = attrs.field(factory=dict)
    split: str | None = attrs.field(default=None, validator=_a_split)
    num_examples: int | None = attrs.field(default=None, validator=optional(positive_int))
    python: str | None = None
    search_path: list[str] = attrs.field(factory=list)
    processes: int = attrs.field(default=1, validator=positive_int)
    load_timeout_seconds: float = attrs.field(default=600, validator=positive_seconds)
    cancel_timeout_seconds: float = attrs.field(default=10, validator=finite_seconds)

    def question(self, op: str) -> bytes:
        """The first frame that a child gets: what to load, and what for."""
        path = [os.path.abspath(os.path.expanduser(folder)) for folder in self.search_path]
        return frame(
            {
                "op": op,
                "env_id": self.env_id,
                "env_args": self.env_args,
                "split": self.split,
                "limit": self.num_examples,
                "search_path": path,
                "own_path": [] if self.python is not None else sys.path,
            }
        )


def frame(message: Mapping[str, Any]) -> bytes:
    """``message`` as a child reads it."""
    content = orjson.dumps(message, option=orjson.OPT_NON_STR_KEYS)
    return HEAD.pack(len(content)) + content


def child_command(settings: VerifiersSettings, descriptor: int) -> list[str]:
    """What starts a child whose end of the socket is ``descriptor``."""
    python = sys.executable if settings.python is None else _program(settings.python)
    return [python or sys.executable, "-c", _BOOT, str(pathlib.Path(__file__).parent), str(descriptor)]


def check_python(settings: VerifiersSettings, name: str) -> None:
    """Is there a Python to run the environment ``name`` with?

    **Errors**: `MissingExtraError` when it should be this one and the package is not there; `ConfigError` when the
    program that ``python`` names is not.
    """
    if settings.python is not None:
        if _program(settings.python) is None:
            raise ConfigError(f"there is no program {settings.python}", key=f"{name}.python")
    elif importlib.util.find_spec("verifiers") is None:
        what = "the environment verifiers (unless its key python names a Python that has the package)"
        raise MissingExtraError(what, extra="verifiers")


def _program(python: str) -> str | None:
    return shutil.which(os.path.expanduser(python))
