"""The gym: servers, client and supervisor put together.

===============  ==========================================================================================
`open_gym`       a configuration's servers: in this process, on sockets, or as managed processes
`connect_gym`    servers that someone else runs
`Gym`            what both give: ``run_examples`` for a trainer, ``post`` for anything else
`build_server`   one server of a configuration as an object
===============  ==========================================================================================
"""

from __future__ import annotations

from ._build import build_server, find_implementation
from ._gym import Gym
from ._open import connect_gym, open_gym, open_gym_of

__all__ = ["Gym", "build_server", "connect_gym", "find_implementation", "open_gym", "open_gym_of"]
