"""The warden: a small program that is the parent of every managed server, and outlives gym_trio just long enough.

It is started as its own Python process with nothing but the standard library, so it imports nothing of gym_trio:

==============  ===========================================================================================
``_warden``     one process per supervisor; forks a keeper for each server and stands behind all of them
``_keeper``     one process per server: starts it, reaps all it leaves behind, ends it; the one state machine
``_spawn``      from a request to a running program
``_marker``     how a server's descendants are recognized when their parents have been killed
``_channel``    JSON lines and file descriptors between gym_trio and a keeper; waiting for children
``_kernel``     what the kernel knows about processes, and signals that cannot reach the wrong one
==============  ===========================================================================================

::

    gym_trio ── control socket ── warden          (subreaper: inherits the tree of a keeper that was killed)
        └────── channel ───────── ├─ keeper       (subreaper: every descendant of its server ends up here)
                                  │   └─ server … descendants, wherever they fork, whatever session they take
                                  └─ keeper …

Whoever dies, somebody who knows the whole tree is left: gym_trio's death closes every channel and each keeper ends
its own tree; a keeper's death kills its server (parent-death signal) and hands the rest to the warden, which ends
them; the warden's death closes a pipe that every keeper watches. When all of them are killed together, gym_trio
itself sweeps what carries its marker (`gym_trio.processes._sweep`).
"""

from __future__ import annotations


def main(arguments: list[str]) -> None:
    """Run as ``main([control_fd, owner_pid, token])`` until gym_trio is done and nothing of the tree is left."""
    from ._warden import Warden

    control, owner, token = arguments
    Warden(int(control), int(owner), token).run()
