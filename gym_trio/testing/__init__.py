"""For tests of what is built on gym_trio, and of users' own servers.

====================  ==========================================================
`open_fake_gym`       a gym whose one agent is a function of yours
====================  ==========================================================
"""

from __future__ import annotations

from ._fake_gym import open_fake_gym

__all__ = ["open_fake_gym"]
