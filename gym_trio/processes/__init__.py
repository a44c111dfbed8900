"""Managed servers: processes with one owner, of which nothing is left when their block is left.

================  =====================================================================================
``_supervisor``   `open_supervisor`, `Supervisor`: starting a fleet, stopping it, the order of the end
``_process``      `ManagedProcess`, `ServerState`: one server's life
``_spec``         what a server is started with, checked
``_readiness``    ready by a URL, ready by a line on a pipe
``_output``       lines from pipes to wherever they are wanted; logs; the last lines
``_report``       `StopReport`, `ServerExit`
``_ports``        `bind_port`, `check_port_free`, `find_port_holder`
``_link``         starting the warden, talking to it
``_sweep``        what is done when the warden and all keepers are killed at once
``warden/``       the program that is the parent of the servers
================  =====================================================================================
"""

from __future__ import annotations

from ._ports import bind_port, check_port_free, find_port_holder
from ._process import READY_FD, ManagedProcess, ServerState
from ._report import ServerExit, StopReport
from ._supervisor import Supervisor, open_supervisor

__all__ = [
    "READY_FD",
    "ManagedProcess",
    "ServerExit",
    "ServerState",
    "StopReport",
    "Supervisor",
    "bind_port",
    "check_port_free",
    "find_port_holder",
    "open_supervisor",
]
