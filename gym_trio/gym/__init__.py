"""The gym: servers, client and supervisor put together.

===============  ==========================================================================================
`open_gym`       a configuration's servers: in this process, on sockets, or as managed processes
`connect_gym`    servers that someone else runs
`Gym`            what both give: ``run_examples`` for a trainer, ``post`` for anything else
`ProcessOptions`  how a fleet of processes is run
`build_server`   one server of a configuration as an object
===============  ==========================================================================================
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from ._build import build_server, find_implementation, load_class
from ._gym import Gym
from ._open import ask_head, connect_gym, open_gym, open_gym_of

if TYPE_CHECKING:
    from ._processes import ProcessOptions as ProcessOptions


def __getattr__(name: str) -> Any:
    if name != "ProcessOptions":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return importlib.import_module(f"{__name__}._processes").ProcessOptions


__all__ = [
    "Gym",
    "ProcessOptions",
    "ask_head",
    "build_server",
    "connect_gym",
    "find_implementation",
    "load_class",
    "open_gym",
    "open_gym_of",
]
