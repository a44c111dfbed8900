"""An environment whose tools break in every way. Importable on purpose: their processes load this file."""

from __future__ import annotations

import collections
import ctypes
import enum
import os
import pathlib
import random
import signal
import subprocess
import sys
import time
from typing import Any

import attrs
import trio

from gym_trio.errors import ToolError
from gym_trio.servers import RequestBody, ResourcesServer, tool


class Mood(enum.Enum):
    GOOD = "good"
    BAD = "bad"


@attrs.define
class Item:
    name: str
    mood: Mood = Mood.GOOD


@attrs.define
class Shelf:
    """A state with records in it, one of them known by two ways."""

    items: list[Item] = attrs.Factory(list)
    by_name: dict[str, Item] = attrs.Factory(dict)
    rng: random.Random = attrs.field(factory=lambda: random.Random(1))
    counts: collections.Counter[str] = attrs.Factory(collections.Counter)
    odd: Any = None


class Smuggler:
    """Pickles as a call of what it should not be able to reach."""

    def __reduce__(self) -> Any:
        return os.mkdir, ("/nowhere/at/all",)


class Apart(ResourcesServer):
    session_type = Shelf

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.own = 0

    @tool
    def act(self, session: Shelf, what: str, note: str = "") -> Any:
        """Do what is asked."""
        if note:
            with open(note, "a") as file:
                file.write(f"{os.getpid()}\n")
        return ACTS[what](session)

    @tool
    def put(self, session: Shelf, item: Item) -> dict[str, Any]:
        """Put an item on the shelf."""
        session.items.append(item)
        session.by_name[item.name] = item
        session.counts[item.name] += 1
        self.own += 1
        return {"items": len(session.items), "own": self.own, "pid": os.getpid(), "draw": session.rng.random()}

    @tool
    def leave_a_daemon(self, session: Shelf, note: str) -> str:
        """Start a program that has left the process group and whose parent has ended, with the tool's own output."""
        leave_a_daemon(note)
        return "left"

    @tool
    def leave_a_daemon_and(self, session: Shelf, note: str, what: str) -> Any:
        """Start such a program, and do what is asked."""
        leave_a_daemon(note)
        return ACTS[what](session)

    @tool(isolated=True)
    async def spoil(self, session: Shelf, name: str) -> str:
        """Change the mood of an item, on a loop of its own."""
        await trio.lowlevel.checkpoint()
        session.by_name[name].mood = Mood.BAD
        return session.items[0].mood.value

    @tool
    async def look(self, session: Shelf) -> Any:
        """What is on the shelf, here."""
        return {
            "items": [[item.name, item.mood.value] for item in session.items],
            "same": all(session.by_name[item.name] is item for item in session.items),
            "counts": dict(session.counts),
            "pid": os.getpid(),
            "draw": session.rng.random(),
        }

    @tool
    def meet(self, session: Shelf, folder: str, others: int) -> int:
        """Wait until as many calls as that have begun."""
        place = pathlib.Path(folder)
        (place / f"{os.getpid()}-{time.monotonic_ns()}").touch()
        deadline = time.monotonic() + 60
        while len(list(place.iterdir())) < others and time.monotonic() < deadline:
            time.sleep(0.005)
        return len(list(place.iterdir()))

    async def verify(self, session: Shelf, request: RequestBody) -> float:
        return float(len(session.items))


NOTE_AND_SLEEP = "import sys, time; open(sys.argv[1], 'a').write(f'{os.getpid()}\\n'); time.sleep(600)"


def leave_a_daemon(note: str) -> None:
    start = f"import os; os.fork() and os._exit(0); os.setsid(); {NOTE_AND_SLEEP}"
    subprocess.run([sys.executable, "-c", start, note], check=True)
    while not (os.path.exists(note) and os.path.getsize(note)):
        time.sleep(0.005)


def raise_it(session: Shelf) -> None:
    raise ZeroDivisionError("bang")


def refuse(session: Shelf) -> None:
    session.by_name["kept"] = Item("kept")
    session.items.append(session.by_name["kept"])
    raise ToolError("not today")


def hang(session: Shelf) -> None:
    while True:
        pass


def exit_hard(session: Shelf) -> None:
    os._exit(3)


def exit_softly(session: Shelf) -> None:
    sys.exit(3)


def kill(session: Shelf) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def kill_parent(session: Shelf) -> None:
    os.kill(os.getppid(), signal.SIGKILL)
    time.sleep(600)


def fault(session: Shelf) -> None:
    ctypes.string_at(0)


def eat(session: Shelf) -> None:
    kept = []
    while True:
        kept.append(bytearray(1 << 24))


def smuggle(session: Shelf) -> None:
    session.odd = Smuggler()


def keep_a_generator(session: Shelf) -> None:
    session.odd = (each for each in ())


ACTS: dict[str, Any] = {
    "raise": raise_it,
    "refuse": refuse,
    "hang": hang,
    "exit": exit_hard,
    "exit_softly": exit_softly,
    "kill": kill,
    "kill_parent": kill_parent,
    "fault": fault,
    "eat": eat,
    "smuggle": smuggle,
    "keep_a_generator": keep_a_generator,
    "nan": lambda session: {"deep": [float("nan")]},
    "infinity": lambda session: float("inf"),
    "object": lambda session: object(),
    "chatter": lambda session: "x" * (64 * 2**20 + 1),
    "null": lambda session: None,
    "text": lambda session: "fine",
    "slow": lambda session: time.sleep(0.3),
}
