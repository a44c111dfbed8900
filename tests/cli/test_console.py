"""What is printed: whoever reads it, if anyone does, and whatever is in it."""

from __future__ import annotations

import os
import pathlib
import signal
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import orjson
import pytest

from gym_trio.cli._console import print_line, print_table, tell
from gym_trio.cli._worker import _say_ready
from gym_trio.gym._processes import SERVE_MANAGED
from gym_trio.processes import READY_FD

MAIN = "from gym_trio.cli import main; main()"
ROW = {"responses_create_params": {"input": "x"}, "response": {"output": []}, "_ng_task_index": 0, "reward": 1.0}

Start = Callable[..., subprocess.CompletedProcess[bytes]]


def put(path: pathlib.Path, *rows: dict[str, Any]) -> pathlib.Path:
    path.write_bytes(
        b"".join(orjson.dumps({**ROW, "_ng_rollout_index": at, **row}) + b"\n" for at, row in enumerate(rows))
    )
    return path


@pytest.fixture
def start(tmp_path: pathlib.Path) -> Start:
    """``start(word, ..., stdout=..., stderr=...)``: the command line in a process of its own."""

    def started(*words: Any, **given: Any) -> subprocess.CompletedProcess[bytes]:
        command = [sys.executable, "-m", "gym_trio", *map(str, words)]
        return subprocess.run(command, cwd=tmp_path, check=False, **given)

    return started


@pytest.fixture
def nobody() -> Any:
    """A pipe of which nobody will ever read."""
    reader, writer = os.pipe()
    os.close(reader)
    yield writer
    os.close(writer)


def test_a_run_goes_on_when_nobody_reads_what_it_tells(start: Any, scripted: Any, tmp_path: Any, nobody: int) -> None:
    """Its ``tee`` was interrupted or its terminal is gone: it ends as it would have, with all of its files."""
    words = ("eval", "run", "mcqa", "--config", scripted("x"), "--limit", "2", "-o", "out/r.jsonl")
    assert start(*words, stdout=nobody, stderr=nobody).returncode == 0
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert {"r.jsonl", "r_aggregate_metrics.json", "r_timing.json", "quality_summary.json"} <= names


def test_who_has_read_enough_is_no_error(start: Any, tmp_path: Any, nobody: int) -> None:
    """``view | head`` and ``--help | head`` say nothing."""
    rollouts = put(tmp_path / "r.jsonl", {}, {})
    for words in (
        ("view", rollouts),
        ("view", rollouts, "--json"),
        ("eval", "aggregate", rollouts),
        ("eval", "--help"),
    ):
        ran = start(*words, stdout=nobody, stderr=subprocess.PIPE)
        assert (ran.returncode, ran.stderr) == (0, b"")


def test_a_result_that_cannot_be_kept_is_an_error(start: Any, tmp_path: Any) -> None:
    """On a full disk: one line, and a 1; what is told on the way may be lost."""
    rollouts = put(tmp_path / "r.jsonl", {}, {})
    said = b"gym-trio: standard output: cannot be written (No space left on device)\n"
    with open("/dev/full", "wb") as full:
        for words in (("view", rollouts), ("view", rollouts, "--json"), ("eval", "aggregate", rollouts)):
            ran = start(*words, stdout=full, stderr=subprocess.PIPE)
            assert (ran.returncode, ran.stderr) == (1, said)
        assert start("view", "no.jsonl", stderr=full).returncode == 2


def test_a_process_without_standard_streams(tmp_path: Any) -> None:
    """They were closed by whoever started it."""
    rollouts = put(tmp_path / "r.jsonl", {}, {})
    for words in (["view", rollouts], ["eval", "aggregate", rollouts]):
        command = ["sh", "-c", 'exec "$0" -m gym_trio "$@" >&- 2>&-', sys.executable, *words]
        assert subprocess.run(command, check=False).returncode == 0


def test_every_character_can_be_printed(start: Any, tmp_path: Any) -> None:
    """In an encoding that does not have it, it is spelled out; a name of a file may be no text at all."""
    rollouts = put(tmp_path / "r.jsonl", {"response": {"output": [{"content": "→ 4"}]}})
    ran = start(
        "view", rollouts, "--task", "0", stdout=subprocess.PIPE, env={**os.environ, "PYTHONIOENCODING": "ascii"}
    )
    assert ran.returncode == 0
    assert b"assistant: \\u2192 4" in ran.stdout
    odd = tmp_path / os.fsdecode(b"\xff.jsonl")
    rollouts.rename(odd)
    for words in (("eval", "aggregate", odd, "-o", odd), ("eval", "aggregate", odd, "-o", odd, "--json")):
        ran = start(*words, stdout=subprocess.PIPE)
        assert ran.returncode == 0
        assert b"_aggregate_metrics.json" in ran.stdout


def test_what_stands_in_a_table_is_whole_in_a_pipe(capsys: Any) -> None:
    """However long: no terminal's width folds it."""
    url, name = "http://127.0.0.1:40439/" + "x" * 200, "a_server_of_a_long_name" * 5
    print_table("t", ("server", "url", "pid"), [(name, url, "1")])
    [line] = [line for line in capsys.readouterr().out.splitlines() if url in line]
    assert name in line


@pytest.mark.parametrize("show", [print_line, tell, lambda text: print_table("t", "c", [(text,)])])
def test_no_text_commands_the_terminal(capsys: Any, show: Any) -> None:
    """What a model or a server wrote moves no cursor, sets no title and rings no bell; lines and tabs stay."""
    shown = "".join(map(chr, range(0x100)))
    show(shown)
    told = "".join(capsys.readouterr())
    assert not {chr(code) for code in (*range(0x20), *range(0x7F, 0xA0))} - {"\n", "\t"} & set(told)
    assert r"\x1b" in told
    assert "ä" in told


def test_the_name_of_a_metric_is_no_markup(run: Any, tmp_path: pathlib.Path) -> None:
    """Brackets and colons are shown as they are."""
    row = {"a[/b]c": 1, "[bold]d": 1, ":smile:": 1, "agent_ref": {"name": "[red]x[/]"}}
    ran = run("eval", "aggregate", put(tmp_path / "r.jsonl", row))
    assert ran.code == 0
    for name in ("mean/a[/b]c", "mean/[bold]d", "mean/:smile:", "[red]x[/]"):
        assert name in ran.out


@pytest.mark.parametrize(
    "odd", [None, True, 1, 1.5, "text", [], {}, [None, 1, "x", {}], [[{}]], {"output": 3, "input": 3}]
)
def test_a_rollout_is_shown_whatever_stands_in_it(run: Any, tmp_path: pathlib.Path, odd: Any) -> None:
    """In the place of any part of a conversation; as a list, whole, and as JSON."""
    item = {"type": "message", "content": odd}
    rollouts = put(
        tmp_path / "r.jsonl",
        *({name: odd} for name in ("response", "responses_create_params", "reward", "agent_ref", "_ng_failure_class")),
        *(
            {"response": {"output": output}}
            for output in (odd, [odd], [item], [{**item, "content": [odd, {"text": odd}]}])
        ),
        *({"response": {"output": [{"type": kind, "summary": odd}]}} for kind in ("reasoning", "function_call", "odd")),
        {"responses_create_params": {"input": odd}},
    )
    for more in ([], ["--task", "0"], ["--json"]):
        ran = run("view", rollouts, *more)
        assert (ran.code, ran.err) == (0, "")


@pytest.mark.parametrize(("begin", "module"), [(MAIN, "gym_trio.cli._app"), (SERVE_MANAGED, "gym_trio.cli._worker")])
def test_ctrl_c_while_it_starts_ends_a_process_without_a_word(begin: str, module: str) -> None:
    """It does not tell where its imports were; who ignores the signal goes on ignoring it."""
    interrupted = (
        "import os, signal, sys\n"
        "class Interrupt:\n"
        "    def find_spec(self, name, *_):\n"
        f"        if name == {module!r}:\n"
        "            os.kill(os.getpid(), signal.SIGINT)\n"
        "            os._exit(9)\n"
        "sys.meta_path.insert(0, Interrupt())\n"
    )
    # Said in both cases: these tests themselves may have been started by something that ignores it.
    for handler, code in (("signal.default_int_handler", -signal.SIGINT), ("signal.SIG_IGN", 9)):
        program = f"{interrupted}signal.signal(signal.SIGINT, {handler})\n{begin}"
        ran = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False)
        assert (ran.returncode, ran.stderr) == (code, b"")


def test_a_server_that_nobody_waits_for_any_more_is_up_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another one has failed meanwhile, and the reader of its word has gone: that is no error of this one."""
    reader, writer = os.pipe()
    monkeypatch.setenv(READY_FD, str(writer))
    os.close(reader)
    _say_ready("http://127.0.0.1:1")
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(writer)
