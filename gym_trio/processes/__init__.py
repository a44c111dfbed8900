"""Managed servers: processes with one owner, of which nothing is left when their block is left.

==================  =====================================================================================
``_supervisor``     `open_supervisor`, `Supervisor`: starting a fleet, stopping it, the order of the end
``_process``        `ManagedProcess`, `ServerState`: one server's life
``_spec``           what a server is started with, checked
``_readiness``      ready by a URL, ready by a line on a pipe
``_output``         lines from pipes to wherever they are wanted; logs; the last lines
``_report``         `StopReport`, `ServerExit`
``_ports``          `bind_port`, `check_port_free`, `find_port_holder`
``_link``           starting the warden, talking to it
``_sandbox``        `open_sandbox`, `Sandbox`: commands with limits in a directory of their own
``_sandbox_run``    one command: its pipes, its bounds, its end; ``_sandbox_launcher`` confines it from inside
``_sandbox_files``  paths that cannot leave the directory, and its removal
``_fork``           `fork_kept`: a fork of this process, of which nothing stays
``_sweep``          what is done when the warden and all keepers are killed at once
``warden/``         the program that is the parent of the servers
==================  =====================================================================================
"""

from __future__ import annotations

from ._fork import KeptFork, fork_kept
from ._ports import bind_port, check_port_free, find_port_holder
from ._process import READY_FD, ManagedProcess, ServerState
from ._report import ServerExit, StopReport
from ._sandbox import ExecResult, Sandbox, SandboxLimits, open_sandbox
from ._supervisor import Supervisor, open_supervisor

__all__ = [
    "READY_FD",
    "ExecResult",
    "KeptFork",
    "ManagedProcess",
    "Sandbox",
    "SandboxLimits",
    "ServerExit",
    "ServerState",
    "StopReport",
    "Supervisor",
    "bind_port",
    "check_port_free",
    "find_port_holder",
    "fork_kept",
    "open_sandbox",
    "open_supervisor",
]
