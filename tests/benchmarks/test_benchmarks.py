"""The benchmarks' frame: exact counts do not rise, and no ratio is printed of two sides that did other work."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any
from xml.etree import ElementTree

import pytest

ROOT = pathlib.Path(__file__).parents[2]


@contextlib.contextmanager
def importable(place: pathlib.Path) -> Iterator[None]:
    sys.path.insert(0, str(place))
    try:
        yield
    finally:
        sys.path.remove(str(place))


def benchmarks(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "benchmarks", *words]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def test_no_exact_count_has_risen() -> None:
    """Task steps, resumptions, segments and system calls are at most those stored beside the benchmark."""
    done = benchmarks("--check")
    assert done.returncode == 0, done.stdout + done.stderr
    stored = json.loads((ROOT / "benchmarks" / "counts.json").read_text())
    assert stored
    for name in stored:
        assert name in done.stdout


def test_a_count_that_rises_fails() -> None:
    """The check compares: a count above the stored one is named."""
    with importable(ROOT):
        from benchmarks._counts import rises
    assert rises({"steps": 2.0}, {"steps": 2.0}) == []
    assert len(rises({"steps": 3.0}, {"steps": 2.0})) == 1


def test_a_run_writes_figures_and_a_plot(tmp_path: pathlib.Path) -> None:
    """One benchmark from the command line: medians on standard output, everything as JSON, a bar per ratio as SVG."""
    told, plot = tmp_path / "out.json", tmp_path / "out.svg"
    done = benchmarks("sessions", "--quick", "--rounds", "1", "--json", str(told), "--plot", str(plot))
    assert done.returncode == 0, done.stderr
    assert "cores" in done.stdout
    assert "python 3" in done.stdout
    (made,) = json.loads(told.read_text())["benchmarks"]
    (ratio,) = made["ratios"]
    assert ratio["value"] > 0
    words = [element.text for element in ElementTree.parse(plot).iter("{http://www.w3.org/2000/svg}text")]
    assert ratio["title"] in words


def test_no_ratio_of_other_work() -> None:
    """A side that did other work, or is absent, gives no ratio but the reason; the plot and the table bear it."""
    with importable(ROOT):
        from benchmarks import _plot, _report
        from benchmarks._records import Benchmark, Comparison, Result, Run
        from benchmarks._rounds import compare
    comparison = Comparison("a", "b", "cpu_seconds", "a over b", target=0.5)
    one, other = Run({"results": "x"}, {"cpu_seconds": 1.0}), Run({"results": "y"}, {"cpu_seconds": 4.0})
    assert compare(comparison, {"a": [one], "b": [one]}, {}).value == 1
    refused = compare(comparison, {"a": [one], "b": [other]}, {})
    absent = compare(comparison, {"a": [one]}, {"b": "not installed"})
    assert refused.value is None
    assert "results" in str(refused.refused)
    assert "not installed" in str(absent.refused)
    result = Result(Benchmark("n", "c", (), (comparison,)), {}, {}, (refused, absent))
    assert "no ratio" in _plot.as_svg([result], {"cores": "2", "processor": "p", "system": "s"}, "today")
    assert "a over b" not in _report.as_table([result], {"cores": "2", "processor": "p", "system": "s"}, "today")


def test_a_side_that_runs_more_often_is_compared_within_its_round() -> None:
    """Rounds go there and back; the ratio is that of the medians, its range that of what ran in the same round."""
    with importable(ROOT):
        from benchmarks._records import Absent, Benchmark, Comparison, Run, Side
        from benchmarks._rounds import run_benchmark
    quick, slow = Side("quick", "x", times=2), Side("slow", "y")
    costs = {"quick": iter([1.0, 2.0, 30.0, 40.0]), "slow": iter([4.0, 20.0])}
    order = []

    def run(side: Any) -> Any:
        order.append(side.name)
        return Run({"n": 1}, {"cpu_seconds": next(costs[side.name])})

    comparison = Comparison("quick", "slow", "cpu_seconds", "quick over slow")
    result = run_benchmark(Benchmark("n", "c", (quick, slow), (comparison,)), 2, run)
    assert order == ["quick", "quick", "slow", "slow", "quick", "quick"]
    (ratio,) = result.ratios
    assert (ratio.value, ratio.low, ratio.high) == (16.0 / 12.0, 0.25, 2.0)

    order.clear()
    result = run_benchmark(
        Benchmark("n", "c", (quick,), ()), 2, lambda side: order.append(side.name) or Absent("not there")
    )
    assert (order, result.absent) == (["quick"], {"quick": "not there"})


def test_an_earlier_runs_results_stand_for_what_is_not_run_now() -> None:
    """Through their JSON, compared anew; what is run now counts, and the order is the catalogue's."""
    with importable(ROOT):
        from benchmarks import _report
        from benchmarks._records import Benchmark, Comparison, Result, Run
        from benchmarks._rounds import compare
    comparison = Comparison("a", "b", "cpu_seconds", "a over b", target=1.0)
    chosen = {name: Benchmark(name, "c", (), (comparison,)) for name in ("first", "second", "third")}

    def result(name: str, mine: float) -> Any:
        runs = {"a": (Run({"n": 1}, {"cpu_seconds": mine}),), "b": (Run({"n": 1}, {"cpu_seconds": 2.0}),)}
        return Result(chosen[name], runs, {}, (compare(comparison, runs, {}),))

    earlier = _report.as_json([result("third", 1.0), result("first", 8.0)], {}, "yesterday")
    found = _report.with_earlier([result("first", 4.0)], chosen, earlier)
    assert [one.benchmark.name for one in found] == ["first", "third"]
    assert [one.ratios[0].value for one in found] == [2.0, 0.5]


def test_rollouts_with_other_answers_are_other_work() -> None:
    """The digest of rollouts is the same in any order and for fields left out or null, and tells a changed output."""
    with importable(ROOT / "benchmarks" / "sides"):
        from _tool_call import REPLIES, Tally

    def result(number: int, told: str, **more: Any) -> dict[str, Any]:
        output = {"type": "function_call_output", "call_id": "call_1", "output": told, **more}
        response = {"id": f"resp_{2 * number}", "output": [*REPLIES[0], output, *REPLIES[1]], "tools": []}
        asked = {"input": [{"role": "user", "content": str(number)}]}
        return {"responses_create_params": asked, "response": response, "reward": 1.0}

    def work(*results: dict[str, Any]) -> dict[str, Any]:
        tally = Tally()
        for one in results:
            tally.add(one)
        return dict(tally.finished())

    first = work(result(1, "cold"), result(2, "cold"))
    assert first == work(result(2, "cold"), result(1, "cold", status=None))
    assert first["model_calls"] == 4
    assert first != work(result(1, "cold"), result(2, "warm"))
    assert first != work(result(1, "cold"), result(3, "cold"))


def test_a_peer_that_cannot_be_installed_is_told_as_absent(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Setup says why and fails; a run says it again in the place of the side, measures the others, and goes on."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("PYTHON_NEMO_GYM", str(tmp_path / "no-such-python"))
    set_up = benchmarks("setup", "nemo_gym")
    assert set_up.returncode == 1
    assert "no-such-python" in set_up.stdout
    done = benchmarks("import", "--quick", "--rounds", "1")
    assert done.returncode == 0, done.stderr
    assert "nemo_gym: ABSENT, could not be installed" in done.stdout
    assert "import, over NeMo Gym: no ratio" in done.stdout
    assert "import, over trio and httpx: 0" in done.stdout


def test_a_profile_is_of_one_side() -> None:
    """``--profile`` prints the dearest functions of a side; an unknown one is named with those that there are."""
    done = benchmarks("sessions", "--quick", "--profile", "in one")
    assert done.returncode == 0, done.stderr
    assert "tottime" in done.stdout
    wrong = benchmarks("sessions", "--profile", "in two")
    assert wrong.returncode == 2
    assert "in ten" in wrong.stderr
    assert benchmarks("--profile", "in one").returncode == 2


@pytest.mark.skipif(not pathlib.Path("/proc").is_dir(), reason="looks for the side's process in /proc")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_run_that_is_ended_leaves_no_process(number: signal.Signals, tmp_path: pathlib.Path) -> None:
    """A signal ends the side that is running, too; the exit code tells the signal."""
    environment = {**os.environ, "BENCHMARKS_OF_THIS_TEST": str(tmp_path)}

    def living() -> list[bytes]:
        found = []
        for place in pathlib.Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if str(tmp_path).encode() in (place / "environ").read_bytes():
                    found.append((place / "cmdline").read_bytes())
        return found

    command = [sys.executable, "-m", "benchmarks", "stream"]
    with subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.DEVNULL) as process:
        while not any(b"stream.py" in words for words in living()):
            assert process.poll() is None
            time.sleep(0.02)
        process.send_signal(number)
        assert process.wait() == 128 + number
    assert living() == []


def test_an_unknown_benchmark_is_named() -> None:
    """A wrong name is exit code 2 with what there is."""
    done = benchmarks("clent")
    assert done.returncode == 2
    assert "client" in done.stderr + done.stdout
