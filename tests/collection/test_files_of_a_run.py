"""Lines that are appended, torn, repaired; the lock; what is replaced as a whole."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import resource
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gym_trio.collection import RunFiles
from gym_trio.collection._jsonl import JsonlSink, dump_line, read_jsonl, repair_tail, replacing, write_rows, write_whole
from gym_trio.collection._keys import NumberSet, pack, unpack
from gym_trio.collection._lock import run_lock
from gym_trio.errors import RowError, RunError, RunLocked, UsageError


def test_the_files_of_a_run_are_named_after_its_output():
    """The names of the contract, and gym_trio's own beside them."""
    files = RunFiles.of("out/r.jsonl")
    assert [str(path) for path in (files.failures, files.materialized, files.aggregate, files.profile)] == [
        "out/r_failures.jsonl",
        "out/r_materialized_inputs.jsonl",
        "out/r_aggregate_metrics.json",
        "out/r_reward_profiling.jsonl",
    ]
    assert [path.name for path in (files.agent_metrics, files.repeat_metrics, files.quality, files.verdicts)] == [
        "r_agent_metrics.json",
        "r_repeat_level_metrics.json",
        "quality_summary.json",
        "rollout_verdicts.jsonl",
    ]
    assert [path.name for path in (files.identity, files.timing, files.lock)] == [
        "r_run.json",
        "r_timing.json",
        ".r.jsonl.lock",
    ]


ROWS = [{"a": 1}, {"b": "line\nend", "c": "é"}, {"d": [1, {"e": "}"}]}]


def test_a_file_that_is_cut_at_any_byte_is_repaired_and_loses_at_most_one_row(tmp_path):
    """At every byte offset: whole rows stay, the torn one goes, and a second repair finds nothing to do."""
    whole = b"".join(map(dump_line, ROWS))
    ends = [0]
    for row in ROWS:
        ends.append(ends[-1] + len(dump_line(row)))
    for cut in range(len(whole) + 1):
        path = tmp_path / f"{cut}.jsonl"
        path.write_bytes(whole[:cut])
        told = repair_tail(path)
        # A row whose line end alone is missing is whole.
        kept = sum(cut >= end - 1 for end in ends[1:])
        assert [row for _, row in read_jsonl(path)] == ROWS[:kept]
        assert path.read_bytes() == whole[: ends[kept]]
        assert (told is None) == (cut in ends)
        assert repair_tail(path) is None


@given(st.binary(max_size=30), st.integers(0, 3))
@settings(deadline=None)
def test_any_tail_is_repaired_into_whole_lines(tmp_path_factory, tail, rows):
    """Whatever bytes a crash has left at the end, the rows before them stay."""
    path = tmp_path_factory.mktemp("t") / "r.jsonl"
    whole = b"".join(map(dump_line, ROWS[:rows]))
    path.write_bytes(whole + tail)
    repair_tail(path)
    content = path.read_bytes()
    assert content.startswith(whole)
    assert content == b"" or content.endswith(b"\n")
    assert len(content) <= len(whole + tail) + 1


def test_a_torn_line_longer_than_a_block_is_cut_off(tmp_path):
    """The beginning of the last line is looked for block by block."""
    path = tmp_path / "r.jsonl"
    path.write_bytes(dump_line({"a": 1}) + b'{"x": "' + b"y" * 300_000)
    assert "300007 bytes were cut off" in str(repair_tail(path))
    assert path.read_bytes() == dump_line({"a": 1})
    assert repair_tail(tmp_path / "none.jsonl") is None


def test_what_cannot_be_repaired_is_named(tmp_path):
    """A folder in the place of a file."""
    with pytest.raises(RunError, match="cannot be repaired"):
        repair_tail(tmp_path)


def test_a_broken_line_in_the_middle_is_named_and_not_repaired(tmp_path):
    """It was not torn by a kill, so nobody may throw it away silently."""
    path = tmp_path / "r.jsonl"
    path.write_bytes(b'{"a": 1}\nnonsense\n{"b": 2}\n')
    assert repair_tail(path) is None
    with pytest.raises(RowError, match=r"r\.jsonl:2: is not JSON"):
        list(read_jsonl(path))


async def test_a_row_is_in_the_file_when_the_call_returns(tmp_path):
    """Each row is one whole line, without and with the wait for the disk."""
    for fsync in (False, True):
        path = tmp_path / f"{fsync}.jsonl"
        with JsonlSink(path, fsync) as sink:
            for number, row in enumerate(ROWS, 1):
                sink.append_nowait(row)
                await sink.settle()
                assert len(path.read_text().splitlines()) == number
            assert sink.written == 3
            sink.append_nowait({"last": 1})
        assert len(path.read_text().splitlines()) == 4
    with JsonlSink(path, False) as sink:
        sink.append_nowait({"more": pathlib.Path("x"), 1: 2})
    assert json.loads(path.read_text().splitlines()[-1]) == {"more": "x", "1": 2}


@pytest.mark.parametrize("what", ["moved", "removed", "replaced", "its folder is removed"])
def test_a_file_that_goes_away_while_it_is_written_is_told_of_at_once(tmp_path, what):
    """An editor has saved it, or a script has tidied up: no row more is written where nobody will find it."""
    path = tmp_path / "out" / "r.jsonl"
    path.parent.mkdir()
    with JsonlSink(path) as sink:
        sink.append_nowait({"n": 0})
        path.rename(tmp_path / "elsewhere")
        if what == "replaced":
            path.write_bytes((tmp_path / "elsewhere").read_bytes())
        elif what == "its folder is removed":
            path.parent.rmdir()
        elif what == "removed":
            (tmp_path / "elsewhere").unlink()
        with pytest.raises(
            RunError, match=r"r\.jsonl: was moved, removed or replaced while the run was writing it; if"
        ):
            sink.append_nowait({"n": 1})
    if what == "moved":
        assert [row["n"] for _, row in read_jsonl(tmp_path / "elsewhere")] == [0, 1]


def test_a_sink_that_cannot_be_opened_is_named(tmp_path):
    """A folder in the place of a file."""
    with pytest.raises(UsageError, match="cannot be written"), JsonlSink(tmp_path):
        pytest.fail("it was opened")


def test_a_file_is_replaced_as_a_whole_or_not_at_all(tmp_path):
    """What goes wrong on the way leaves the old file, and no other."""
    path = tmp_path / "a.json"
    write_whole(path, b"old", fsync=True)
    with contextlib.suppress(ZeroDivisionError), replacing(path) as file:
        file.write(b"%d" % (1 // 0))
    assert path.read_bytes() == b"old"
    write_rows(path, [{"a": 1}])
    assert path.read_bytes() == b'{"a":1}\n'
    assert os.listdir(tmp_path) == ["a.json"]
    with pytest.raises(RunError, match="cannot be written"):
        write_whole(tmp_path / "no" / "a.json", b"")


def test_a_lock_is_held_by_one_run_and_gone_with_it(tmp_path):
    """The second is told who holds it; leaving the block takes the file away."""
    lock, about = tmp_path / ".l", tmp_path / "r.jsonl"
    with run_lock(lock, about=about):
        with pytest.raises(RunLocked) as caught, run_lock(lock, about=about):
            pytest.fail("two hold it")
        assert str(caught.value).startswith(f"{about}: another run is writing here (process {os.getpid()} on ")
    assert not lock.exists()
    with run_lock(lock, about=about):
        assert lock.exists()


def test_the_lock_of_a_killed_run_is_gone_with_it(tmp_path):
    """Its file may stay; it holds nobody back."""
    lock = tmp_path / ".l"
    script = (
        "import pathlib, sys, time\n"
        "from gym_trio.collection._lock import run_lock\n"
        "path = pathlib.Path(sys.argv[1])\n"
        "with run_lock(path, about=path):\n"
        "    print('held', flush=True)\n"
        "    sys.stdin.read()\n"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", script, str(lock)], stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True
    )
    with holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(RunLocked, match=f"process {holder.pid} on"), run_lock(lock, about=lock):
            pytest.fail("two hold it")
        holder.kill()
        holder.wait()
        with run_lock(lock, about=lock):
            assert str(os.getpid()) in lock.read_text()


def test_a_holder_that_has_not_said_who_it_is_still_holds(tmp_path):
    """Between taking the lock and writing its name into it."""
    lock = tmp_path / ".l"
    with run_lock(lock, about=lock):
        lock.write_bytes(b"")
        with pytest.raises(RunLocked, match="it has not said which"), run_lock(lock, about=lock):
            pytest.fail("two hold it")


def test_a_lock_that_cannot_be_made_is_named(tmp_path):
    """No such folder."""
    with pytest.raises(RunError, match="the lock cannot be made"), run_lock(tmp_path / "no" / ".l", about=tmp_path):
        pytest.fail("it was made")


def test_a_lock_on_a_full_disk_is_named(tmp_path):
    """And not left behind."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    try:
        with pytest.raises(RunError, match=r"\.l: cannot be written"), run_lock(tmp_path / ".l", about=tmp_path):
            pytest.fail("it was made")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert list(tmp_path.iterdir()) == []


@given(st.lists(st.integers(0, 2**64 - 1) | st.integers(0, 20)))
def test_a_set_of_numbers_is_a_set(numbers):
    """It knows what is in it, where, and what was put in twice."""
    made = NumberSet(numbers)
    ordered = sorted(numbers)
    assert list(made) == ordered
    assert list(made.distinct()) == sorted(set(numbers))
    assert made.repeated() == {number for number in numbers if numbers.count(number) > 1}
    for number in [*numbers, 5, 2**64 - 1]:
        assert (number in made) == (number in numbers)
        if number in numbers:
            assert made.position(number) == ordered.index(number)
    assert "x" not in made


def test_many_numbers_are_sorted_in_parts():
    """More than fit in one part."""
    count = 200_000
    made = NumberSet((number * 7919) % count for number in range(count))
    assert len(made) == count
    assert list(made)[:3] == [0, 1, 2]
    assert not made.repeated()


@given(st.integers(0, 2**31 - 1), st.integers(0, 2**20 - 1))
def test_a_rollout_is_one_number(task, rollout):
    """And the number is the rollout again."""
    assert unpack(pack(task, rollout)) == (task, rollout)
    assert pack(task, rollout) < 2**51
