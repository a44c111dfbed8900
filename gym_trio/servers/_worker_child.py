"""What runs in a worker process: it carries out the jobs that it is sent, one at a time, and answers in JSON.

It blocks on purpose; there is no event loop here but for a verifier or tool that is async.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import importlib.util
import logging
import os
import pickle
import resource
import signal
import socket
import struct
import sys
import types
from typing import Any

import orjson

from ._jobs import Job

__all__ = ["HEAD", "UNGUARDED", "LoadedMain", "confine", "main", "serve_one"]

HEAD = struct.Struct("!QQ")  # the length of what follows it, and the question's number

UNGUARDED = (
    "the program's main module, loaded for its classes, runs servers: "
    "what it does belongs under if __name__ == '__main__'"
)

_PR_SET_PDEATHSIG = 1

logger = logging.getLogger("gym_trio.servers")


class LoadedMain(types.ModuleType):
    """A program's main module, loaded in a process of its servers. One that ran them again here would have no end."""

    is_loading = True
    runs_servers = False


def main(descriptor: int) -> None:
    """Serve the process at the other end of the socket ``descriptor`` until it closes it."""
    link = socket.socket(fileno=descriptor)
    link.set_inheritable(False)
    number, content = _receive(link)
    made = pickle.loads(content)
    confine(link, os.getppid(), made["memory_bytes"])
    try:
        server = _find_class(made["module"], made["file"], made["class"])(name=made["name"], config=made["config"])
        answer: dict[str, Any] = {"ready": True}
    except Exception as error:
        logger.error("a worker process could not be set up", exc_info=error)
        answer = {"error": f"{type(error).__name__}: {error}"}
    _send(link, number, orjson.dumps(answer))
    while "ready" in answer:
        number, content = _receive(link)
        serve_one(link, server, pickle.loads(content), number)


def serve_one(link: socket.socket, server: Any, job: Job, number: int = 0) -> None:
    """Carry one job out and answer.

    What the job has forked may come back from it too. It ends here as a program of its own would: an answer of its own
    would be taken for that of the next job.
    """
    own, code = os.getpid(), 0
    try:
        answer = job.carry_out(server)
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except Exception:  # noqa: BLE001  it has been logged
        code = 1
    if os.getpid() != own:
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
        os._exit(code)
    _send(link, number, answer)


def confine(link: socket.socket, parent: int, memory_bytes: int) -> None:
    """Die with the process that started this one, take no more than ``memory_bytes``, and leave no core file.

    The end of this process is the end of ``link``, whatever it has forked.
    """
    os.register_at_fork(after_in_child=link.close)
    if sys.platform == "linux":
        # It fires when the thread that forked ends; each of the parents forks in the one that lives as long as it does.
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)
        with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as score:
            score.write("1000")  # the kernel takes this one first, not the server
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    memory_bytes += _memory_in_use()
    for kind in (resource.RLIMIT_DATA, resource.RLIMIT_AS):
        with contextlib.suppress(OSError, ValueError):
            hard = resource.getrlimit(kind)[1]
            bound = memory_bytes if hard == resource.RLIM_INFINITY else min(hard, memory_bytes)
            resource.setrlimit(kind, (bound, hard))
            return


def _memory_in_use() -> int:
    # A fork begins with all that its server has; the bound is on what comes on top.
    try:
        with open("/proc/self/statm") as pages:
            return int(pages.read().split()[5]) * resource.getpagesize()
    except OSError:
        return 0


def _receive(link: socket.socket) -> tuple[int, bytes]:
    length, number = HEAD.unpack(_exactly(link, HEAD.size))
    return number, _exactly(link, length)


def _exactly(link: socket.socket, length: int) -> bytes:
    parts = []
    while length:
        try:
            part = link.recv(min(length, 1 << 20))
        except ConnectionResetError:  # it has gone without reading the last answer
            part = b""
        if not part:
            os._exit(0)  # the server has ended, or wants no more of this process
        parts.append(part)
        length -= len(part)
    return b"".join(parts)


def _send(link: socket.socket, number: int, content: bytes) -> None:
    try:
        link.sendall(HEAD.pack(len(content), number) + content)
    except OSError:
        os._exit(0)


def _find_class(module_name: str, file: str | None, qualified: str) -> Any:
    found: Any = _find_module(module_name, file)
    for part in qualified.split("."):
        found = getattr(found, part)
    return found


def _find_module(name: str, file: str | None) -> Any:
    """The module ``name``, by import, else from its file: a program's own main module, or one loaded by its path."""
    if name != "__main__":
        try:
            return importlib.import_module(name)
        except ImportError:
            if file is None:
                raise
    # A program's ``if __name__ == "__main__"`` must not run here.
    own = "__mp_main__" if name == "__main__" else name
    spec = importlib.util.spec_from_file_location(own, file) if file else None
    if spec is None or spec.loader is None:
        raise ImportError(f"the module {name} has no file to load it from")
    module = importlib.util.module_from_spec(spec)
    sys.modules[own] = sys.modules[name] = module
    if name != "__main__":
        spec.loader.exec_module(module)
        return module
    module.__class__ = LoadedMain
    assert isinstance(module, LoadedMain)
    try:
        spec.loader.exec_module(module)
    finally:
        module.is_loading = False
        if module.runs_servers:
            raise ImportError(UNGUARDED)  # whatever it made of that
    return module
