"""Isolated tools: what they do to their process fails their own call, and what they do to the state comes back."""

from __future__ import annotations

import base64
import os
import pathlib
import pickle
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import attrs
import pytest
import trio

from gym_trio.servers import RequestBody, ResourcesServer, Session, tool, tools_of
from gym_trio.servers._session_state import state_from, state_to

HERE = pathlib.Path(__file__).parent
BOUNDS = {"tool_timeout_seconds": 20, "tool_processes": 2, "tool_memory_bytes": 2**29}


@pytest.fixture(scope="module")
def tools() -> Iterator[Any]:
    sys.path.insert(0, str(HERE))
    try:
        import isolated_tools

        yield isolated_tools
    finally:
        sys.path.remove(str(HERE))


def local_class() -> type[ResourcesServer]:
    """A class that no other process can import."""
    import isolated_tools

    class Local(isolated_tools.Apart):  # type: ignore[name-defined, misc]
        pass

    return Local


@pytest.fixture(params=["Apart", "local"])
def kind(request: Any, tools: Any) -> Any:
    return local_class() if request.param == "local" else tools.Apart


class Caller:
    """One session and its calls."""

    def __init__(self, gym: Any, cookies: dict[str, str]) -> None:
        self.gym = gym
        self.cookies = cookies

    async def __call__(self, tool_name: str, **arguments: Any) -> Any:
        return await self.gym.client.post("env", f"/{tool_name}", json=arguments, cookies=self.cookies)

    async def failure(self, what: str, **arguments: Any) -> Any:
        response = await self("act", what=what, **arguments)
        assert response.status == 500, (what, response.body)
        return response.json()["failure"]


async def session_of(gym: Any) -> Caller:
    return Caller(gym, (await gym.client.post("env", "/seed_session", json={})).cookies())


BROKEN = {
    "raise": "ZeroDivisionError: bang",
    "exit": "exit code 3",
    "exit_softly": "SystemExit: 3",
    "kill": "SIGKILL",
    "fault": "SIGSEGV",
    "eat": "MemoryError",
    "nan": "NaN",
    "infinity": "infinity",
    "object": "object",
    "smuggle": "mkdir",
    "keep_a_generator": "for its 'odd': cannot pickle 'generator' object",
    "chatter": "returned cannot be written: it is 67108865 characters, above 67108864",
}


async def test_whatever_a_tool_does_is_one_failure_of_stage_agent(open_servers: Any, kind: Any) -> None:
    """Each names the tool and what happened; the session's state is as it was, and its next call is answered."""
    async with open_servers((kind, "env", BOUNDS)) as gym:
        call = await session_of(gym)
        await call("put", item={"name": "a"})
        for what, said in BROKEN.items():
            failure = await call.failure(what)
            assert (failure["failure_kind"], failure["stage"]) == ("agent_run_error", "agent"), what
            assert said in failure["failure_reason"], (what, failure)
            assert (await call("act", what="text")).json() == "fine"
            assert (await call("look")).json()["items"] == [["a", "good"]], what


async def test_what_a_tool_changes_comes_back(open_servers: Any, kind: Any) -> None:
    """Records, a random source, and one object known by two names, between isolated tools and those of the server; a
    server's own attributes stay with each process."""
    async with open_servers((kind, "env", BOUNDS)) as gym:
        call = await session_of(gym)
        first = (await call("put", item={"name": "a", "mood": "good"})).json()
        second = (await call("put", item={"name": "b"})).json()
        assert (await call("spoil", name="a")).json() == "bad"
        seen = (await call("look")).json()
        assert seen["items"] == [["a", "bad"], ["b", "good"]]
        assert seen["same"] is True
        assert seen["counts"] == {"a": 1, "b": 1}
        assert len({first["draw"], second["draw"], seen["draw"]}) == 3
        assert os.getpid() == seen["pid"] != first["pid"]
        assert (await (await session_of(gym))("look")).json()["items"] == []


async def test_a_refusal_goes_to_the_model_with_what_was_done_before(open_servers: Any, kind: Any) -> None:
    """`ToolError` and arguments that do not fit are answers; null and text are results."""
    async with open_servers((kind, "env", BOUNDS)) as gym:
        call = await session_of(gym)
        refused = await call("act", what="refuse")
        assert (refused.status, refused.json()["detail"]) == (400, "not today")
        assert (await call("look")).json()["items"] == [["kept", "good"]]
        assert (await call("put", item={"name": 3})).status == 422
        assert (await call("act", what="null")).json() is None


def alive(pid: int) -> bool:
    try:
        state = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def gone(pid: int) -> bool:
    deadline = time.monotonic() + 10
    while alive(pid) and time.monotonic() < deadline:
        time.sleep(0.02)
    return not alive(pid)


def first_pid(note: pathlib.Path) -> int:
    deadline = time.monotonic() + 40
    while not (note.exists() and note.read_text().endswith("\n")) and time.monotonic() < deadline:
        time.sleep(0.02)
    return int(note.read_text().split()[0])


async def test_one_that_hangs_is_killed_in_time(open_servers: Any, kind: Any, tmp_path: pathlib.Path) -> None:
    """It is an ``agent_timeout`` that names tool and setting, and its process is gone."""
    note = tmp_path / "pids"
    async with open_servers((kind, "env", {**BOUNDS, "tool_timeout_seconds": 1})) as gym:
        call = await session_of(gym)
        failure = await call.failure("hang", note=str(note))
        assert (failure["failure_kind"], failure["stage"]) == ("agent_timeout", "agent")
        assert "act" in failure["failure_reason"]
        assert "tool_timeout_seconds" in failure["failure_reason"]
        assert await trio.to_thread.run_sync(gone, first_pid(note))
        assert (await call("act", what="text")).json() == "fine"


async def test_a_client_that_leaves_ends_the_tool(open_servers: Any, tools: Any, tmp_path: pathlib.Path) -> None:
    """Nobody waits for the result any more; the session's other tools have their turn at once."""
    note = tmp_path / "pids"
    async with open_servers((tools.Apart, "env", BOUNDS), serve="sockets") as gym:
        call = await session_of(gym)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(lambda: call("act", what="hang", note=str(note)))
            pid = await trio.to_thread.run_sync(first_pid, note)
            nursery.cancel_scope.cancel()
        assert await trio.to_thread.run_sync(gone, pid)
        assert (await call("look")).status == 200


async def test_sessions_run_side_by_side_and_one_session_in_turns(
    open_servers: Any, tools: Any, tmp_path: pathlib.Path
) -> None:
    """Two sessions' tools meet; twenty calls at once in one session lose nothing of what each has put there."""
    async with open_servers((tools.Apart, "env", {**BOUNDS, "tool_timeout_seconds": 60})) as gym:
        one, other = await session_of(gym), await session_of(gym)
        met: list[int] = []

        async def meet(call: Caller) -> None:
            met.append((await call("meet", folder=str(tmp_path), others=2)).json())

        async with trio.open_nursery() as nursery:
            nursery.start_soon(meet, one)
            nursery.start_soon(meet, other)
        assert met == [2, 2]
        async with trio.open_nursery() as nursery:
            for number in range(10):
                nursery.start_soon(lambda number=number: one("put", item={"name": str(number)}))
                nursery.start_soon(one, "look")
        assert len((await one("look")).json()["items"]) == 10


async def test_processes_end_with_the_server(open_servers: Any, tools: Any) -> None:
    """They are kept for the next call and no longer than the server."""
    async with open_servers((tools.Apart, "env", {**BOUNDS, "tool_processes": 1})) as gym:
        call = await session_of(gym)
        pids = {(await call("put", item={"name": "a"})).json()["pid"] for _ in range(3)}
        assert len(pids) == 1
        assert all(map(alive, pids))
    assert all(map(gone, pids))


async def test_a_state_that_cannot_be_handed_over_is_named(open_servers: Any, tools: Any) -> None:
    """A state that holds what no other process can have fails the call, and the failure says what to do."""

    async def make(self: Any) -> Any:
        return tools.Shelf(odd=(each for each in ()))

    cls = type("Odd", (tools.Apart,), {"create_session": make})
    async with open_servers((cls, "env", BOUNDS)) as gym:
        failure = await (await session_of(gym)).failure("text")
        assert (failure["failure_kind"], failure["stage"]) == ("agent_run_error", "agent")
        assert "generator" in failure["failure_reason"]
        assert "isolated=False" in failure["failure_reason"]


@pytest.mark.parametrize("error", [KeyError, LookupError, ZeroDivisionError, RecursionError])
async def test_a_state_that_refuses_what_comes_back_is_named(open_servers: Any, error: type[Exception]) -> None:
    """Whatever its ``__setstate__`` raises is the call's failure, of the same kind as all others."""

    class Picky(Session):
        def __setstate__(self, state: Any) -> None:
            raise error("not this")

    class Sets(ResourcesServer):
        session_type = Picky

        @tool
        def change(self, session: Any) -> str:
            session.changed = True
            return "done"

    async with open_servers((Sets, "env", BOUNDS)) as gym:
        failure = (await (await session_of(gym))("change")).json()["failure"]
        assert (failure["failure_kind"], failure["stage"]) == ("agent_run_error", "agent")
        assert "the state that the tool change left cannot be taken back" in failure["failure_reason"]
        assert "not this" in failure["failure_reason"]


def test_a_plain_tool_is_isolated_unless_it_is_told_otherwise(tools: Any) -> None:
    """As a verifier: async on the loop, plain in a process; the author may choose."""

    class Chosen(ResourcesServer):
        @tool(isolated=False)
        def here(self, session: Session) -> None:
            """In a thread."""

    found = {**tools_of(tools.Apart), **tools_of(Chosen)}
    assert {name: one.isolated for name, one in found.items()} == {
        "act": True,
        "leave_a_daemon": True,
        "leave_a_daemon_and": True,
        "put": True,
        "spoil": True,
        "look": False,
        "meet": True,
        "here": False,
    }


@attrs.define
class Slotted:
    a: int
    b: Any = None


class Weird(Session):
    def __getstate__(self) -> Any:
        return {"packed": self.inner}

    def __setstate__(self, packed: Any) -> None:
        self.inner = packed["packed"]


class Bag(dict[str, Any]):
    pass


def session_with(**attributes: Any) -> Session:
    session = Session()
    vars(session).update(attributes)
    return session


def weird(inner: Any) -> Weird:
    made = Weird()
    made.inner = inner
    return made


@pytest.mark.parametrize(
    ("here", "there"),
    [
        (session_with(a=1, b=2), session_with(b=[3], c={"x": (1,)})),
        (Slotted(1), Slotted(2, {"x": Slotted(3)})),
        (weird(1), weird([2])),
        ({"a": 1}, {"b": 2}),
        (Bag(a=1), Bag(b=2)),
        ([1, 2], [3]),
        ({1}, {2, 3}),
    ],
)
def test_every_kind_of_state_takes_what_comes_back(here: Any, there: Any) -> None:
    """It stays the same object, and has the other's content, what was removed there included."""
    state_from(pickle_text(state_to(there)), here, ResourcesServer(name="env"))
    assert state_to(here) == state_to(there)


def short(text: str) -> bytes:
    return b"\x8c" + bytes([len(text)]) + text.encode()


def pickle_text(content: bytes) -> str:
    return base64.b64encode(content).decode()


@pytest.mark.parametrize("name", ["os.system", "builtins.eval", "builtins.getattr", "subprocess.Popen", "nowhere.x"])
def test_a_process_cannot_send_what_would_run_here(name: str) -> None:
    """Names outside of the state's own classes are refused before anything is called, by any way to them."""
    module, _, attribute = name.rpartition(".")
    for content in (
        f"c{module}\n{attribute}\n.".encode(),
        f"c{RequestBody.__module__}\n{name}\n.".encode(),
        b"\x80\x04\x8c"
        + bytes([len(__name__)])
        + __name__.encode()
        + b"\x8c"
        + bytes([len(name)])
        + name.encode()
        + b"\x93.",
    ):
        with pytest.raises((pickle.UnpicklingError, AttributeError)):
            state_from(pickle_text(content), Slotted(1), ResourcesServer(name="env"))


def noted(note: pathlib.Path) -> int:
    deadline = time.monotonic() + 20
    while not (note.exists() and note.read_text().endswith("\n")) and time.monotonic() < deadline:
        time.sleep(0.02)
    return int(note.read_text())


async def test_what_a_tool_leaves_running_ends_with_the_server(open_servers: Any, tools: Any, tmp_path: Any) -> None:
    """Also a program that has left its process group and lost its parent."""
    note = tmp_path / "pid"
    async with open_servers((tools.Apart, "env", BOUNDS)) as gym:
        call = await session_of(gym)
        assert (await call("leave_a_daemon", note=str(note))).json() == "left"
        pid = await trio.to_thread.run_sync(noted, note)
        assert alive(pid)
    assert not alive(pid)


async def test_what_a_tool_of_a_local_class_leaves_running_ends_with_its_call(
    open_servers: Any, tools: Any, tmp_path: Any
) -> None:
    """Its process is made for one call, and all that comes of it goes with it, whatever group or parent it has."""
    note = tmp_path / "pid"
    async with open_servers((local_class(), "env", BOUNDS)) as gym:
        call = await session_of(gym)
        assert (await call("leave_a_daemon", note=str(note))).json() == "left"
        assert not alive(int(note.read_text()))


@pytest.mark.parametrize("what", ["hang", "exit", "kill", "kill_parent"])
async def test_a_local_class_whose_tool_fails_leaves_no_descendant(
    open_servers: Any, tools: Any, tmp_path: Any, what: str
) -> None:
    """It overruns, ends or kills its process, or the one that keeps it: the failure comes when nothing is left."""
    note = tmp_path / "pid"
    before = children()
    async with open_servers((local_class(), "env", {**BOUNDS, "tool_timeout_seconds": 3})) as gym:
        call = await session_of(gym)
        response = await call("leave_a_daemon_and", note=str(note), what=what)
        assert response.status == 500
        assert response.json()["failure"]["stage"] == "agent"
        assert not alive(int(note.read_text()))
        assert (await call("act", what="text")).json() == "fine"
    assert children() == before


async def test_a_cancelled_call_of_a_local_class_leaves_no_descendant(
    open_servers: Any, tools: Any, tmp_path: Any
) -> None:
    """When the caller is back, the program that had left the group and lost its parent is gone."""
    note = tmp_path / "pid"
    before = children()
    async with open_servers((local_class(), "env", BOUNDS)) as gym:
        call = await session_of(gym)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(lambda: call("leave_a_daemon_and", note=str(note), what="hang"))
            pid = await trio.to_thread.run_sync(noted, note)
            assert alive(pid)
            nursery.cancel_scope.cancel()
        assert not alive(pid)
    assert children() == before


PROGRAM = """
import sys, trio
sys.path.insert(0, sys.argv[1])
import isolated_tools
from gym_trio.http import MemoryTransport, ServerClient, open_lifespan

def make(kind):
    class Local(isolated_tools.Apart):
        pass

    return Local if kind == "local" else isolated_tools.Apart

async def main():
    server = make(sys.argv[3])(name="env")
    async with open_lifespan(server.app):
        client = ServerClient({"env": (MemoryTransport(server.app), "http://env")})
        cookies = (await client.post("env", "/seed_session", json={})).cookies()
        await client.post("env", "/leave_a_daemon_and", json={"note": sys.argv[2], "what": "hang"}, cookies=cookies)

if __name__ == "__main__":
    trio.run(main)
"""


@pytest.mark.parametrize("which", ["importable", "local"])
def test_what_a_tool_leaves_running_ends_with_a_killed_program(tmp_path: Any, which: str) -> None:
    """SIGKILL of the program that has the server in memory; nobody holds its output open afterwards either."""
    program, note = tmp_path / "program.py", tmp_path / "pid"
    program.write_text(PROGRAM)
    command = [sys.executable, str(program), str(HERE), str(note), which]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as running:
        assert running.stdout is not None
        pid = noted(note)
        assert alive(pid)
        running.kill()
        assert running.stdout.read() == b""
    assert gone(pid)


LEAN = """
import sys, trio, gym_trio
from gym_trio.http import open_lifespan

class Lean(gym_trio.ResourcesServer):
    async def verify(self, session, request):
        return 1.0

async def main():
    async with open_lifespan(Lean(name="lean").app):
        print("gym_trio.processes" in sys.modules)

trio.run(main)
"""


def test_a_server_without_such_tools_starts_without_the_supervisor() -> None:
    """Not even its modules are imported."""
    ran = subprocess.run([sys.executable, "-c", LEAN], capture_output=True, text=True, check=True)
    assert ran.stdout == "False\n"


def children() -> set[int]:
    """Of this process."""
    found = set()
    for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            pid, _, rest = stat.read_text().partition(" ")
        except OSError:
            continue
        if int(rest.rpartition(")")[2].split()[1]) == os.getpid():
            found.add(int(pid))
    return found


@pytest.mark.parametrize("parked", [True, False])
async def test_a_call_that_is_cancelled_anywhere_leaves_nothing(
    open_servers: Any, tools: Any, cancel_at_step: Any, parked: bool
) -> None:
    """From the wait for the first process to its answer; the next call gets another, and all end with the server."""
    before, cuts = children(), 0
    async with open_servers((tools.Apart, "env", BOUNDS)) as gym:
        call = await session_of(gym)
        for step in range(2, 30):
            with cancel_at_step(step, parked=parked) as cancelled:
                assert (await call("act", what="text")).json() == "fine"
            if not cancelled.scope.cancelled_caught:
                break
            cuts += 1
        assert (await call("act", what="text")).json() == "fine"
    assert cuts >= 3
    assert children() == before
