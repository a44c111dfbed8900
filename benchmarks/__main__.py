"""``python -m benchmarks [NAME…]``, ``python -m benchmarks setup [PEER…]``, ``python -m benchmarks --check``."""

from __future__ import annotations

import argparse
import datetime
import pathlib
import signal
import sys
import time
from collections.abc import Sequence

from . import _peers, _plot, _profile, _report
from ._catalogue import catalogue
from ._processes import ROOT, run_side
from ._records import Absent, Benchmark, Outcome, Result, Side
from ._rounds import run_benchmark


def main(arguments: Sequence[str] | None = None) -> int:
    words = list(sys.argv[1:] if arguments is None else arguments)
    if words[:1] == ["setup"]:
        return _setup(words[1:])
    given = _parse(words)
    if given.check:
        from ._counts import check

        return check(write=given.write)
    chosen = catalogue(quick=given.quick)
    unknown = [name for name in given.names if name not in chosen]
    if unknown:
        print(f"there is no benchmark {', '.join(unknown)}; there are {', '.join(chosen)}", file=sys.stderr)
        return 2
    strange = [] if given.peers is None else [name for name in given.peers.split(",") if name not in _peers.PEERS]
    if strange:
        print(f"there is no peer {', '.join(strange)}; there are {', '.join(_peers.PEERS)}", file=sys.stderr)
        return 2
    if given.profile is not None:
        return _show_profile(chosen, given)
    about, date = _report.machine(), datetime.date.today().isoformat()
    print(f"{date}, {', '.join(f'{key} {value}' for key, value in about.items())}", flush=True)
    began = time.monotonic()
    results = [_one(chosen[name], given) for name in given.names or chosen]
    print(f"took {datetime.timedelta(seconds=round(time.monotonic() - began))}", flush=True)
    if given.earlier:
        results = _report.with_earlier(results, chosen, pathlib.Path(given.earlier).read_text())
    if given.json:
        pathlib.Path(given.json).write_text(_report.as_json(results, about, date))
    if given.plot:
        pathlib.Path(given.plot).write_text(_plot.as_svg(results, about, date))
    if given.readme:
        readme = ROOT / "README.md"
        table = _report.as_table(results, about, date) + _picture(given.plot)
        readme.write_text(_report.put_between_markers(readme.read_text(), table))
    return 0


def _picture(plot: str | None) -> str:
    """The README shows the plot when it lies in the repository."""
    place = None if plot is None else pathlib.Path(plot).resolve()
    if place is None or not place.is_relative_to(ROOT):
        return ""
    return f"\n\n![The ratios as bars]({place.relative_to(ROOT).as_posix()})"


def _parse(words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"one or more of {', '.join(catalogue())}; all")
    parser.add_argument("--peers", help=f"only these, of {', '.join(_peers.PEERS)}, joined by commas")
    parser.add_argument("--json", metavar="OUT")
    parser.add_argument(
        "--earlier", metavar="JSON", help="an earlier run's --json: for benchmarks that are not run now, its results"
    )
    parser.add_argument("--plot", metavar="OUT.svg")
    parser.add_argument("--quick", action="store_true", help="small sizes: proves that all works, measures little")
    parser.add_argument("--rounds", type=int, help="instead of each benchmark's own number")
    parser.add_argument(
        "--readme", action="store_true", help="write the table into README.md, and the plot if it lies beside it"
    )
    parser.add_argument("--profile", metavar="SIDE", help="run one side of one NAME under cProfile: its dearest 25")
    parser.add_argument("--check", action="store_true", help="exact counts against those in counts.json")
    parser.add_argument("--write", action="store_true", help="with --check: take the counts as they are now")
    return parser.parse_args(words)


def _setup(names: list[str]) -> int:
    unknown = [name for name in names if name not in _peers.PEERS]
    if unknown:
        print(f"there is no peer {', '.join(unknown)}; there are {', '.join(_peers.PEERS)}", file=sys.stderr)
        return 2
    for name in names or _peers.PEERS:
        print(f"{name}: {_peers.setup(name)}", flush=True)
    return 0 if all(_peers.python_of(name) for name in names or _peers.PEERS) else 1


def _show_profile(chosen: dict[str, Benchmark], given: argparse.Namespace) -> int:
    if len(given.names) != 1:
        print("--profile SIDE goes with the NAME of one benchmark", file=sys.stderr)
        return 2
    try:
        print(_profile.profile(chosen[given.names[0]], given.profile))
    except LookupError as error:
        print(error.args[0], file=sys.stderr)
        return 2
    return 0


def _one(benchmark: Benchmark, given: argparse.Namespace) -> Result:
    wanted = None if given.peers is None else set(given.peers.split(","))

    def run(side: Side) -> Outcome:
        if wanted is not None and side.peer is not None and side.peer not in wanted:
            return Absent("left out by --peers")
        python = _peers.python_of(side.peer)
        if python is None:
            return Absent(_peers.why_absent(side.peer or ""))
        return run_side(side, python)

    rounds = given.rounds or (benchmark.quick_rounds if given.quick else benchmark.rounds)
    result = run_benchmark(benchmark, rounds, run)
    for line in _report.as_text(result):
        print(line, flush=True)
    return result


def _end(number: int, _: object) -> None:
    """By an exception: a side is ended on the way out, with the daemons that it has started."""
    sys.exit(128 + number)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, _end)
    signal.signal(signal.SIGTERM, _end)
    sys.exit(main())
