"""What a verifier's process answers, and how it finds the class, seen from inside."""

from __future__ import annotations

import json
import os
import pathlib
import pickle
import socket
import subprocess
import sys
from collections.abc import Iterator
from decimal import Decimal
from fractions import Fraction
from typing import Any

import orjson
import pytest
import trio

from gym_trio.errors import FailureKind, RequestRefused, RolloutFailure
from gym_trio.servers import RequestBody, ResourcesServer
from gym_trio.servers._jobs import Verification
from gym_trio.servers._worker_child import HEAD, _find_class
from gym_trio.servers._worker_process import _START


class Acts(ResourcesServer):
    """Its verifier is the row's own function."""

    def verify(self, session: Any, request: RequestBody) -> Any:
        return request["act"]()


def answer_to(act: Any) -> dict[str, Any]:
    answer: dict[str, Any] = orjson.loads(Verification(None, {"act": act}).carry_out(Acts(name="env")))
    return answer


def raising(error: BaseException) -> Any:
    def act() -> None:
        raise error

    return act


def test_a_verdict_is_the_verify_response() -> None:
    """Numbers and named rewards come as the keys of the response."""
    assert answer_to(lambda: 1) == {"answer": {"reward": 1.0}}
    named = answer_to(lambda: {"a": 1, "b": 2})
    assert named == {"answer": {"reward": 3.0, "reward_components": {"a": 1.0, "b": 2.0}}}


def test_a_number_of_another_kind_is_a_reward() -> None:
    """What counts as a real number: numpy's are registered as such, in every width."""
    assert answer_to(lambda: Fraction(1, 4)) == {"answer": {"reward": 0.25}}


@pytest.mark.parametrize(
    "odd", [10**400, {"a": 1e308, "b": 1e308}, {"reward": 10**400}, 1j, Decimal(1), "1", b"1", [1.0]]
)
def test_what_is_no_finite_number_is_no_reward(odd: Any) -> None:
    """Neither are named rewards whose sum is none."""
    failure = answer_to(lambda: odd)["failure"]["failure"]
    assert failure["failure_kind"] == "verifier_error"
    assert "not a finite number" in failure["failure_reason"]


def test_an_async_verifier_runs_to_its_end() -> None:
    """A process has no loop of its own until a verifier needs one."""

    async def slow() -> float:
        await trio.lowlevel.checkpoint()
        return 0.5

    assert answer_to(slow) == {"answer": {"reward": 0.5}}


@pytest.mark.parametrize(
    ("error", "retire"),
    [(ZeroDivisionError("x"), False), (MemoryError(), True), (SystemExit(2), True), (KeyboardInterrupt(), True)],
)
def test_what_it_raises_is_a_verifier_error(error: BaseException, retire: bool) -> None:
    """A process that was asked to end, or ran out of memory, is not used again."""
    answer = answer_to(raising(error))
    assert answer["failure"]["failure"]["failure_kind"] == "verifier_error"
    assert answer["failure"]["failure"]["stage"] == "verification"
    assert answer["retire"] is retire


def test_refusals_and_failures_of_its_own_keep_what_they_say() -> None:
    """A refusal its status, a typed failure its kind."""
    assert answer_to(raising(RequestRefused(422, "no answer"))) == {"refused": [422, "no answer"]}
    own = answer_to(raising(RolloutFailure(FailureKind.JUDGE_FAILED, "silent")))
    assert own["failure"]["failure"]["failure_kind"] == "judge_failed"


@pytest.fixture
def file_of_a_class(tmp_path: pathlib.Path) -> Iterator[str]:
    path = tmp_path / "some_user_env.py"
    path.write_text("class A:\n    class B:\n        pass\nif __name__ == '__main__':\n    raise SystemExit\n")
    main = sys.modules["__main__"]
    yield str(path)
    sys.modules["__main__"] = main
    for name in ("some_user_env", "__mp_main__"):
        sys.modules.pop(name, None)


@pytest.mark.parametrize("module", ["some_user_env", "__main__"])
def test_a_class_is_found_by_its_file(file_of_a_class: str, module: str) -> None:
    """A module that no import finds, and a main program, whose guarded part does not run again."""
    found = _find_class(module, file_of_a_class, "A.B")
    assert found.__qualname__ == "A.B"
    assert sys.modules[module].A.B is found


def test_a_class_that_is_nowhere_is_an_import_error() -> None:
    """Without a file there is nothing to load."""
    with pytest.raises(ImportError):
        _find_class("some_user_env_that_is_not", None, "A")
    with pytest.raises(ImportError):
        _find_class("__main__", None, "A")


def test_a_server_that_goes_without_reading_ends_its_process_without_a_word() -> None:
    """An answer that lies unread when the socket is closed is a reset to the process, not an end."""
    made = {"module": __name__, "file": __file__, "class": "Acts", "name": "env", "config": {}, "memory_bytes": 2**40}
    ours, theirs = socket.socketpair()
    with ours, theirs:
        command = [sys.executable, "-c", _START, str(theirs.fileno()), json.dumps(sys.path)]
        process = subprocess.Popen(command, pass_fds=[theirs.fileno()], stderr=subprocess.PIPE)
        theirs.close()
        content = pickle.dumps(made)
        ours.sendall(HEAD.pack(len(content), 0) + content)
        ours.recv(1, socket.MSG_PEEK)  # the process has answered, and reads on
    assert process.communicate(timeout=60)[1] == b""
    assert process.returncode == 0


_UNGUARDED_PROGRAM = """
import sys, trio
from gym_trio.gym import open_gym_of
from gym_trio.http import ServerClient
from gym_trio.servers import ResourcesServer

class Judges(ResourcesServer):
    def verify(self, session, request):
        return 1.0

async def main():
    client = ServerClient()
    async with open_gym_of([Judges(name="env", client=client)], client) as gym:
        answer = await client.post("env", "/verify", json={"response": {}})
    print(answer.status, answer.text)
    return answer.status

status = trio.run(main)
"""


@pytest.mark.parametrize("then", ["", "assert status == 200", "sys.exit(status)"])
def test_a_program_without_a_guard_is_told_so(tmp_path: pathlib.Path, then: str) -> None:
    """Its process for a verifier runs it as well, and starts none that would run it once more."""
    path = tmp_path / "program.py"
    path.write_text(_UNGUARDED_PROGRAM + then)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    ran = subprocess.run([sys.executable, str(path)], capture_output=True, text=True, env=environment, timeout=100)
    answers = [line for line in (ran.stderr + ran.stdout).splitlines() if "500 {" in line]
    assert 1 <= len(answers) <= 2  # the process may be ended before its own is out
    assert all("under if __name__ == '__main__'" in answer for answer in answers)
    assert any("could not be set up: ImportError" in answer for answer in answers)
