"""Environments whose verifiers block, burn and break. Importable on purpose: their processes load this file."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import struct
import subprocess
import sys
import time
from typing import Any

import attrs

from gym_trio.errors import RequestRefused
from gym_trio.servers import RequestBody, ResourcesServer


@attrs.define
class Basket:
    """A state of a session that is worth verifying."""

    items: list[str] = attrs.Factory(list)


class Plain(ResourcesServer):
    """A plain verifier: it does what its row says."""

    session_type = Basket

    async def seed_session(self, session: Basket, row: RequestBody) -> None:
        session.items = row.get("items", [])

    def verify(self, session: Basket, request: RequestBody) -> Any:
        return act(self, session, request)


class InProcess(Plain):
    """An async verifier that wants a process."""

    verify_in_process = True

    async def verify(self, session: Basket, request: RequestBody) -> Any:
        return act(self, session, request)


class InThread(Plain):
    """A plain verifier that is content with a thread."""

    verify_in_process = False


def act(server: Any, session: Basket, request: RequestBody) -> Any:
    what = request.get("do")
    return ACTS[what](request) if what else {"reward": len(session.items), "pid": os.getpid(), "name": server.name}


def hang(request: RequestBody) -> None:
    note(request)
    while True:
        pass


def backtrack(request: RequestBody) -> None:
    note(request)
    # It never gives the interpreter lock back.
    re.match(r"(a+)+$", "a" * 64 + "b")


def note(request: RequestBody) -> None:
    with open(request["note"], "a") as file:
        file.write(f"{os.getpid()}\n")


def leave_a_child(request: RequestBody) -> None:
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    with open(request["note"], "a") as file:
        file.write(f"{child.pid}\n")
    time.sleep(600)


def refuse(request: RequestBody) -> None:
    raise RequestRefused(422, "the row has no answer")


def raises(request: RequestBody) -> None:
    raise ZeroDivisionError("bang")


def kill_itself(request: RequestBody) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def exit_softly(request: RequestBody) -> None:
    sys.exit(3)


def exit_hard(request: RequestBody) -> None:
    os._exit(3)


def eat(request: RequestBody) -> None:
    kept = []
    while True:
        kept.append(bytearray(1 << 24))


def fork(request: RequestBody) -> float:
    pid = os.fork()
    if not pid:
        if request["fork"] == "raises":
            raise FileNotFoundError("no such program")
        if request["fork"] == "exits":
            sys.exit(3)
        return 100.0
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def fork_and_die(request: RequestBody) -> None:
    if not os.fork():
        signal.pause()
    os.kill(os.getpid(), signal.SIGKILL)


def recurse(request: RequestBody) -> None:
    recurse(request)


def say_on_the_link(request: RequestBody) -> float:
    content: bytes = request["frame"].encode()
    head = struct.pack("!QQ", request.get("length", len(content)), request["number"])
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            if os.readlink(f"/proc/self/fd/{name}").startswith("socket:"):
                os.write(int(name), head + content)
    if request.get("last_word"):
        os._exit(0)
    return 0.75


def chatter(request: RequestBody) -> float:
    sys.stdout.write("to the log\n")
    return 0.5


ACTS: dict[str, Any] = {
    "hang": hang,
    "backtrack": backtrack,
    "leave_a_child": leave_a_child,
    "refuse": refuse,
    "raises": raises,
    "kill_itself": kill_itself,
    "exit_softly": exit_softly,
    "exit_hard": exit_hard,
    "eat": eat,
    "fork": fork,
    "fork_and_die": fork_and_die,
    "recurse": recurse,
    "say_on_the_link": say_on_the_link,
    "chatter": chatter,
    "nan": lambda request: float("nan"),
    "infinity": lambda request: float("inf"),
    "text": lambda request: "1",
    "nothing": lambda request: None,
    "unwritable": lambda request: {"reward": 1, "why": object()},
    "slow": lambda request: time.sleep(0.2) or 1.0,
}
