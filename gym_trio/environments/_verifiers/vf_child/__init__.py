"""What runs in a child process of the ``verifiers`` environment, with any Python that has the package.

It imports the standard library, ``verifiers`` and what an environment brings, and nothing of gym_trio: that Python need
not have it. It speaks JSON frames over one socket; `main` is all that is called from outside.

==============  ==========================================================================
``_serve``      the process's life: load, then rows, or rollouts until the socket closes
``_frames``     messages on the socket
``_relay``      model calls: an HTTP server on loopback whose requests go over the socket
``_find``       from an environment's name to one of the two below
``_classic``    environments that ``load_environment`` makes (``verifiers`` up to 0.3)
``_tasksets``   tasksets with their harness (``verifiers.v1``, the only ones from 0.4 on)
``_report``     what a driver reports: its result, or why there is none
==============  ==========================================================================
"""

from __future__ import annotations

from ._serve import main

__all__ = ["main"]
