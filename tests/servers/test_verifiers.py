"""Verifiers that block, burn, or break: each fails its own rollout, and nothing of them is left."""

from __future__ import annotations

import json
import os
import pathlib
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest
import trio

from gym_trio.errors import ConfigError
from gym_trio.servers import RequestBody, ResourcesServer

HERE = pathlib.Path(__file__).parent
RESPONSE = {"output": []}


@pytest.fixture(scope="module")
def verifiers() -> Iterator[Any]:
    sys.path.insert(0, str(HERE))
    try:
        import blocking_verifiers

        yield blocking_verifiers
    finally:
        sys.path.remove(str(HERE))


def local_class() -> type[ResourcesServer]:
    """A class that no other process can import."""
    import blocking_verifiers

    class Local(blocking_verifiers.Plain):  # type: ignore[name-defined, misc]
        pass

    return Local


@pytest.fixture(params=["Plain", "local"])
def kind(request: Any, verifiers: Any) -> Any:
    return local_class() if request.param == "local" else getattr(verifiers, request.param)


BOUNDS = {"verify_timeout_seconds": 20, "verify_processes": 2, "verify_memory_bytes": 2**29}


async def judged(gym: Any, cookies: Any = None, **row: Any) -> Any:
    return await gym.client.post("env", "/verify", json={"response": RESPONSE, **row}, cookies=cookies)


def alive(pid: int) -> bool:
    try:
        state = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def gone(pids: list[int]) -> bool:
    deadline = time.monotonic() + 10
    while any(map(alive, pids)) and time.monotonic() < deadline:
        time.sleep(0.02)
    return not any(map(alive, pids))


@pytest.mark.parametrize("name", ["Plain", "InProcess", "local"])
async def test_a_verifier_in_a_process_sees_its_session(open_servers: Any, verifiers: Any, name: str) -> None:
    """It runs in another process, on the session's state, on a server with the name and settings of this one."""
    kind = local_class() if name == "local" else getattr(verifiers, name)
    async with open_servers((kind, "env", BOUNDS)) as gym:
        seeded = await gym.client.post("env", "/seed_session", json={"items": ["a", "b"]})
        answer = (await judged(gym, seeded.cookies(), extra=7)).json()
        assert (answer["reward"], answer["name"], answer["extra"]) == (2.0, "env", 7)
        assert answer["pid"] != os.getpid()


BROKEN = {
    "raises": "ZeroDivisionError: bang",
    "kill_itself": "SIGKILL",
    "fork_and_die": "SIGKILL",
    "exit_softly": "SystemExit: 3",
    "exit_hard": "exit code 3",
    "eat": "MemoryError",
    "recurse": "RecursionError",
    "nan": "nan",
    "infinity": "inf",
    "text": "'1'",
    "nothing": "None",
    "unwritable": "object",
}


async def test_whatever_breaks_is_one_verifier_error(open_servers: Any, kind: Any) -> None:
    """Each has its kind and stage and says what happened, and the next verification is judged as ever."""
    async with open_servers((kind, "env", BOUNDS)) as gym:
        for what, said in BROKEN.items():
            response = await judged(gym, do=what)
            assert response.status == 500, (what, response.body)
            failure = response.json()["failure"]
            assert (failure["failure_kind"], failure["stage"]) == ("verifier_error", "verification"), what
            assert said in failure["failure_reason"], (what, failure)
            assert (await judged(gym, do="chatter")).json()["reward"] == 0.5, what


@pytest.mark.parametrize(("end", "code"), [("returns", 0.0), ("raises", 1.0), ("exits", 3.0)])
async def test_what_a_verifier_forks_answers_nothing(open_servers: Any, kind: Any, end: str, code: float) -> None:
    """A fork that comes back out of the verifier ends as a program would, and each rollout gets its own reward."""
    async with open_servers((kind, "env", {**BOUNDS, "verify_processes": 1})) as gym:
        answers = [await judged(gym, do=what, fork=end) for what in ("chatter", "fork", "chatter", "fork", "slow")]
        assert [answer.json().get("reward") for answer in answers] == [0.5, code, 0.5, code, 1.0]


UNREADABLE = [
    "",
    "{",
    "5",
    "null",
    "[]",
    "{}",
    '{"else": 1}',
    '{"ready": true}',
    '{"error": "what is only said of a set-up"}',
    '{"retire": false}',
    '{"answer": {"reward": 1}, "refused": [422, "x"]}',
    '{"refused": 5}',
    '{"refused": [422]}',
    '{"refused": ["x", "y"]}',
    '{"refused": [99999, "y"]}',
    '{"refused": [true, "y"]}',
    '{"failure": []}',
    '{"failure": {"failure": {"failure_kind": 5, "failure_reason": ""}}}',
    '{"answer": {"reward": 1}, "state": 5}',
    "\x00" * 9,
    "[" * 100_000,
]


def last_question(kind: Any, *, of_its_process: bool = False) -> int:
    """The number of what a process is asked: a fork one thing, any other first to set up, and here one or two more."""
    return 0 if "<locals>" in kind.__qualname__ else 1 + of_its_process


async def test_an_answer_in_a_wrong_form_is_one_verifier_error(open_servers: Any, kind: Any) -> None:
    """Whatever the verifier's process sends: its rollout says so, and the next one is judged by another process."""
    async with open_servers((kind, "env", {**BOUNDS, "verify_processes": 1})) as gym:
        pid = None
        for frame in UNREADABLE:
            number = last_question(kind, of_its_process=pid is not None)
            failure = (await judged(gym, do="say_on_the_link", frame=frame, number=number)).json()["failure"]
            assert (failure["failure_kind"], failure["stage"]) == ("verifier_error", "verification"), frame
            assert failure["failure_reason"] == "the verifier's process gave an answer that cannot be read", frame
            before, pid = pid, (await judged(gym)).json()["pid"]
            assert pid != before, frame


async def test_a_failure_of_odd_parts_is_still_that_failure(open_servers: Any, kind: Any) -> None:
    """What is no status, stage or body is passed over."""
    odd = {"http_status": [], "stage": 5, "response_body": 7, "exception_type": {}, "details": 3, "terminal": "x"}
    frame = {"failure": {"failure": {"failure_kind": "verifier_error", "failure_reason": "told", **odd}}}
    async with open_servers((kind, "env", BOUNDS)) as gym:
        number = last_question(kind)
        response = await judged(gym, do="say_on_the_link", frame=json.dumps(frame), number=number)
        failure = response.json()["failure"]
        assert (failure["failure_kind"], failure["failure_reason"]) == ("verifier_error", "told")


async def test_a_second_answer_is_not_the_next_ones(open_servers: Any, kind: Any) -> None:
    """A process has said more than it was asked for: that is nobody's, whenever it comes."""
    async with open_servers((kind, "env", {**BOUNDS, "verify_processes": 1})) as gym:
        first = '{"answer": {"reward": 0.25}}'
        said = (await judged(gym, do="say_on_the_link", frame=first, number=last_question(kind))).json()
        assert said["reward"] == 0.25  # the verifier's own 0.75 comes after it
        assert (await judged(gym, do="chatter")).json()["reward"] == 0.5


async def test_an_answer_to_what_was_not_asked_yet_is_none(open_servers: Any, kind: Any) -> None:
    """It waits for nobody: the verifier that gave it has failed, and another process is asked next."""
    async with open_servers((kind, "env", {**BOUNDS, "verify_processes": 1})) as gym:
        response = await judged(gym, do="say_on_the_link", frame='{"answer": {"reward": 0.25}}', number=2**40)
        assert response.json()["failure"]["failure_reason"].endswith("gave an answer that cannot be read")
        assert (await judged(gym, do="chatter")).json()["reward"] == 0.5


@pytest.mark.parametrize(("frame", "length"), [("{}", 3), ("", 1), ("{}", 2**40)])
async def test_half_an_answer_is_one_verifier_error(open_servers: Any, kind: Any, frame: str, length: int) -> None:
    """The process has ended in the middle of it, or has promised more than is read."""
    async with open_servers((kind, "env", BOUNDS)) as gym:
        sent = {"frame": frame, "length": length, "number": last_question(kind), "last_word": True}
        response = await judged(gym, do="say_on_the_link", **sent)
        failure = response.json()["failure"]
        assert failure["failure_kind"] == "verifier_error"
        assert ("ended: exit code 0" if length < 9 else f"{2**40} bytes") in failure["failure_reason"]
        assert (await judged(gym, do="chatter")).json()["reward"] == 0.5


async def test_a_verifier_may_refuse_a_row(open_servers: Any, verifiers: Any) -> None:
    """The refusal is the client's status, as from a verifier on the loop."""
    async with open_servers((local_class(), "env", BOUNDS)) as gym:
        response = await judged(gym, do="refuse")
        assert (response.status, response.json()["detail"]) == (422, "the row has no answer")


@pytest.mark.parametrize(
    ("name", "what"),
    [("Plain", "hang"), ("Plain", "leave_a_child"), ("local", "backtrack"), ("local", "leave_a_child")],
)
async def test_one_that_hangs_is_killed_with_its_descendants(
    open_servers: Any, verifiers: Any, tmp_path: Any, name: str, what: str
) -> None:
    """It fails within its time limit, its process and that process's children are gone, and another takes its place."""
    note = tmp_path / "pids"
    kind = local_class() if name == "local" else verifiers.Plain
    async with open_servers((kind, "env", {**BOUNDS, "verify_timeout_seconds": 1})) as gym:
        failure = (await judged(gym, do=what, note=str(note))).json()["failure"]
        assert (failure["failure_kind"], failure["stage"]) == ("verifier_error", "verification")
        assert "verify_timeout_seconds" in failure["failure_reason"]
        assert await trio.to_thread.run_sync(gone, [int(line) for line in note.read_text().split()])
        assert (await judged(gym, do="chatter")).json()["reward"] == 0.5


def first_pid(note: pathlib.Path) -> int:
    deadline = time.monotonic() + 40
    while not (note.exists() and note.read_text().endswith("\n")) and time.monotonic() < deadline:
        time.sleep(0.02)
    return int(note.read_text().split()[0])


async def test_a_client_that_leaves_ends_the_verifier(open_servers: Any, verifiers: Any, tmp_path: Any) -> None:
    """Nobody waits for the reward any more, so nothing computes it."""
    note = tmp_path / "pids"
    async with open_servers((verifiers.Plain, "env", BOUNDS), serve="sockets") as gym:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(lambda: judged(gym, do="hang", note=str(note)))
            pid = await trio.to_thread.run_sync(first_pid, note)
            nursery.cancel_scope.cancel()
        assert await trio.to_thread.run_sync(gone, [pid])
        assert (await judged(gym, do="chatter")).json()["reward"] == 0.5


async def test_processes_are_bounded_kept_and_ended_with_the_server(open_servers: Any, verifiers: Any) -> None:
    """Twelve verifications share two processes, which end with the server."""
    async with open_servers((verifiers.Plain, "env", BOUNDS)) as gym:
        pids = set()

        async def one() -> None:
            pids.add((await judged(gym)).json()["pid"])

        async with trio.open_nursery() as nursery:
            for _ in range(12):
                nursery.start_soon(one)
        assert 1 <= len(pids) <= 2
        assert all(map(alive, pids))
    assert gone(list(pids))


async def test_an_idle_process_that_was_killed_is_replaced(open_servers: Any, verifiers: Any) -> None:
    """Whoever ends a waiting process costs no rollout."""
    async with open_servers((verifiers.Plain, "env", {**BOUNDS, "verify_processes": 1})) as gym:
        pid = (await judged(gym)).json()["pid"]
        os.kill(pid, signal.SIGKILL)
        assert await trio.to_thread.run_sync(gone, [pid])
        assert (await judged(gym)).json()["pid"] != pid


async def test_a_state_that_cannot_be_handed_over_is_named(open_servers: Any, verifiers: Any) -> None:
    """A session that holds an open file fails its verification with that as the reason."""

    async def make(self: Any) -> Any:
        return (each for each in ())

    cls = type("Odd", (verifiers.Plain,), {"create_session": make})
    async with open_servers((cls, "env", BOUNDS)) as gym:
        failure = (await judged(gym)).json()["failure"]
        assert failure["failure_kind"] == "verifier_error"
        assert "handed to the verifier's process" in failure["failure_reason"]


async def test_a_class_that_cannot_be_found_again_is_named(open_servers: Any, verifiers: Any) -> None:
    """A class without a place in its module is a verifier error that says so, for every rollout."""
    cls = type("Nowhere", (verifiers.Plain,), {"__module__": verifiers.__name__})
    async with open_servers((cls, "env", BOUNDS)) as gym:
        failure = (await judged(gym)).json()["failure"]
        assert failure["failure_kind"] == "verifier_error"
        assert "Nowhere" in failure["failure_reason"]


async def test_a_thread_bounds_a_verifier_that_blocks(open_servers: Any, verifiers: Any) -> None:
    """With ``verify_in_process = False`` it sees the session itself, in this process, under the same time limit."""
    async with open_servers((verifiers.InThread, "env", {**BOUNDS, "verify_timeout_seconds": 0.1})) as gym:
        assert (await judged(gym)).json()["pid"] == os.getpid()
        failure = (await judged(gym, do="slow")).json()["failure"]
        assert (failure["failure_kind"], failure["stage"]) == ("verifier_error", "verification")
        # What is left behind in its thread takes none of those in which names are looked up and files are written.
        assert trio.to_thread.current_default_thread_limiter().borrowed_tokens == 0


async def test_an_async_verifier_that_hangs_is_bounded_too(open_servers: Any) -> None:
    """On the loop it is cancelled when its time has passed."""

    class Sleeper(ResourcesServer):
        async def verify(self, session: Any, request: RequestBody) -> float:
            await trio.sleep_forever()
            return 1.0

    async with open_servers((Sleeper, "env", {"verify_timeout_seconds": 0.05})) as gym:
        failure = (await judged(gym)).json()["failure"]
        assert (failure["failure_kind"], failure["stage"]) == ("verifier_error", "verification")


@pytest.mark.parametrize(
    "bounds", [{"verify_timeout_seconds": 0}, {"verify_processes": 0}, {"verify_memory_bytes": "x"}]
)
def test_bounds_that_cannot_be_are_refused(verifiers: Any, bounds: Any) -> None:
    """A wrong bound is refused with its key when the server is made."""
    with pytest.raises(ConfigError, match=next(iter(bounds))):
        verifiers.Plain(name="env", config=bounds)


PROGRAM = """
import os, sys, trio
import gym_trio
from gym_trio.http import MemoryTransport, ServerClient, open_lifespan

class Mine(gym_trio.ResourcesServer):
    def verify(self, session, request):
        open(request["note"], "a").write(f"{os.getpid()}\\n")
        while True:
            pass

async def main():
    server = Mine(name="env")
    async with open_lifespan(server.app):
        client = ServerClient({"env": (MemoryTransport(server.app), "http://env")})
        await client.post("env", "/verify", json={"response": {}, "note": sys.argv[1]})

if __name__ == "__main__":
    trio.run(main)
"""


def test_verifiers_die_with_a_killed_server(tmp_path: Any) -> None:
    """SIGKILL of the server, in the middle of a verification of a class of the main program, leaves no process."""
    program, note = tmp_path / "program.py", tmp_path / "pids"
    program.write_text(PROGRAM)
    with subprocess.Popen([sys.executable, str(program), str(note)]) as server:
        pid = first_pid(note)
        server.kill()
    assert gone([pid])


def meddle(request: Any) -> float:
    """Everything that a verifier can do to what it was given."""
    request["new"] = 1
    request["row"] = "changed"
    del request["gone"]
    request["response"]["within"] = True
    request["response"] = {"other": True}
    request["reward"] = 7
    return 0.5


class MeddlesOnTheLoop(ResourcesServer):
    async def verify(self, session: Any, request: Any) -> float:
        return meddle(request)


class MeddlesInAThread(ResourcesServer):
    verify_in_process = False

    def verify(self, session: Any, request: Any) -> float:
        return meddle(request)


class MeddlesInAProcess(ResourcesServer):
    def verify(self, session: Any, request: Any) -> float:
        return meddle(request)


@pytest.mark.parametrize("serve", ["memory", "sockets"])
@pytest.mark.parametrize("kind", [MeddlesOnTheLoop, MeddlesInAThread, MeddlesInAProcess])
async def test_the_row_of_a_result_is_the_one_that_came(open_servers: Any, kind: Any, serve: str) -> None:
    """Whatever a verifier sets, deletes or changes in it, wherever it runs."""
    async with open_servers((kind, "env", {}), serve=serve) as gym:
        for cookies in ({}, (await gym.client.post("env", "/seed_session", json={})).cookies()):
            row = {"row": 1, "gone": 2, "response": {"a": 1}}
            answer = await gym.client.post("env", "/verify", json=row, cookies=cookies)
            assert answer.json() == {**row, "response": {"a": 1}, "reward": 0.5}


async def test_a_deep_row_is_verified(open_servers: Any) -> None:
    """As deep as JSON may be, past what copying it value by value in Python would bear."""
    deep: Any = 1
    for _ in range(600):
        deep = {"in": deep}
    async with open_servers((MeddlesOnTheLoop, "env", {})) as gym:
        row = {"row": deep, "gone": 2, "response": {}}
        answer = await gym.client.post("env", "/verify", json=row)
        assert answer.json() == {**row, "reward": 0.5}
