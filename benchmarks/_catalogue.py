"""The benchmarks by name."""

from __future__ import annotations

from ._records import CPU, Benchmark, Comparison, Partner, Side, arguments_of
from ._whole import rollouts, start

__all__ = ["catalogue"]


def catalogue(*, quick: bool = False) -> dict[str, Benchmark]:
    """All of them; with ``quick``, in sizes that prove that they work and measure little."""
    made = [*_http(quick), *_held(quick), *_stopping(quick), *_rows(quick), *start(), *rollouts(quick)]
    return {benchmark.name: benchmark for benchmark in made}


def _http(quick: bool) -> list[Benchmark]:
    tasks = 32 if quick else 256
    asked = arguments_of(tasks=tasks, requests=1024 if quick else 32768)
    fewer = arguments_of(tasks=tasks, requests=128 if quick else 512)
    load = Partner("load", "load", arguments_of(connections=64, requests=1024 if quick else 8192))
    inside = arguments_of(tasks=tasks, requests=1024 if quick else 16384)
    echo = Partner("before", "echo")
    return [
        Benchmark(
            "client",
            f"CPU of one echo POST of 1 kB from {tasks} tasks",
            (
                Side("gym_trio", "client_gym_trio", asked, None, echo),
                Side("aiohttp", "client_aiohttp", asked, "aiohttp", echo),
                Side("gym_trio, fewer", "client_gym_trio", fewer, None, echo),
                Side("httpx", "client_httpx", fewer, "httpx", echo),
            ),
            (
                Comparison("gym_trio", "aiohttp", "cpu_seconds", "client CPU, over aiohttp on uvloop", target=0.9),
                Comparison("gym_trio, fewer", "httpx", "cpu_seconds", "client CPU, over httpx"),
            ),
            figures={**CPU, "wall_seconds": "s", "process_peak_bytes": "B"},
            per="requests",
        ),
        Benchmark(
            "server",
            "server CPU of one JSON POST of 1 kB",
            (
                Side("gym_trio", "server_gym_trio", (), None, load),
                Side("uvicorn", "server_uvicorn", (), "uvicorn", load),
                Side("hypercorn", "server_hypercorn", (), "hypercorn", load),
            ),
            (
                Comparison("gym_trio", "uvicorn", "cpu_seconds", "server CPU, over uvicorn with FastAPI", target=0.6),
                Comparison("gym_trio", "hypercorn", "cpu_seconds", "server CPU, over stock hypercorn"),
            ),
            figures={**CPU, "process_peak_bytes": "B"},
            per="requests",
        ),
        Benchmark(
            "memory",
            "CPU of one JSON POST of 1 kB, client and server together, to a small ASGI app and to one of Starlette",
            (
                Side("in memory", "memory", (*inside, "--app", "bare", "--over", "memory")),
                Side("over sockets", "memory", (*inside, "--app", "bare", "--over", "sockets")),
                Side("Starlette, in memory", "memory", (*inside, "--over", "memory")),
                Side("Starlette, over sockets", "memory", (*inside, "--over", "sockets")),
            ),
            (
                Comparison("in memory", "over sockets", "cpu_seconds", "POST in memory, over sockets", target=0.2),
                Comparison(
                    "Starlette, in memory",
                    "Starlette, over sockets",
                    "cpu_seconds",
                    "POST in memory, over sockets, Starlette's part included",
                ),
            ),
            figures={**CPU, "wall_seconds": "s"},
            per="requests",
        ),
    ]


def _held(quick: bool) -> list[Benchmark]:
    many = 1024 if quick else 16384
    held = Partner("before", "echo", arguments_of(hold=0.2 if quick else 2.0))
    asked = arguments_of(requests=many)
    again = (*arguments_of(requests=many * 4), "--warm")

    def again_at(width: int) -> Side:
        """Their partner answers when ``width`` are there, and not before: so many are in flight."""
        together = Partner("before", "echo", arguments_of(together=width))
        name = "all at once" if width == many else f"{width} at a time"
        return Side(name, "hold_gym_trio", (*again, "--in-flight", str(width)), None, together)

    return [
        Benchmark(
            "hold",
            f"{many:,} POSTs in flight, each held for a while by the server",
            (
                Side("gym_trio", "hold_gym_trio", (*asked, "--in-flight", str(many)), None, held),
                Side("aiohttp", "hold_aiohttp", asked, "aiohttp", held),
                again_at(many),
                again_at(256),
            ),
            (
                Comparison("gym_trio", "aiohttp", "wall_seconds", "held POSTs, wall, over aiohttp", target=0.9),
                Comparison("gym_trio", "aiohttp", "process_peak_bytes", "held POSTs, memory, over aiohttp", target=0.7),
                Comparison(
                    "all at once", "256 at a time", "cpu_seconds", "CPU of a POST, all at once over 256", target=1.5
                ),
            ),
            rounds=3,
            figures={"wall_seconds": "s", **CPU, "process_peak_bytes": "B"},
            per="requests",
        )
    ]


def _stopping(quick: bool) -> list[Benchmark]:
    sessions = 1000 if quick else 10_000
    resident = (256, 1024) if quick else (256, 1024, 4096, 16384)
    outcomes = 4096 if quick else 32768
    servers, slow = (3, 0.3) if quick else (8, 0.9)
    fleet = arguments_of(servers=servers, slow=slow)
    requests, cancelled = (100, 80) if quick else (1000, 800)
    many = Partner("load", "cancel_load", arguments_of(requests=requests, cancelled=cancelled))

    def stream(layer: str, width: int) -> Side:
        return Side(f"{layer}, {width:,}", "stream", arguments_of(layer=layer, resident=width, rows=outcomes))

    return [
        Benchmark(
            "cancel",
            "from the cancellation of a request to that of its handler",
            (
                Side("one", "cancel_one", arguments_of(requests=50 if quick else 200)),
                Side("many", "cancel_server", ("--server", "gym_trio"), None, many),
                Side("many, hypercorn", "cancel_server", ("--server", "hypercorn"), "hypercorn", many),
            ),
            (
                Comparison(
                    "many",
                    "many, hypercorn",
                    "wall_seconds",
                    f"{cancelled:,} of {requests:,} cancelled, over hypercorn",
                    target=0.6,
                ),
            ),
            figures={"median_seconds": "s", "worst_seconds": "s", "wall_seconds": "s"},
            bounds={"median_seconds": ("one", 1e-3)},
        ),
        Benchmark(
            "sessions",
            f"the drain of {sessions:,} sessions",
            (
                Side("in one", "sessions", arguments_of(sessions=sessions, registries=1)),
                Side("in ten", "sessions", arguments_of(sessions=sessions, registries=10)),
            ),
            (Comparison("in one", "in ten", "cpu_seconds", "drain of a session, among ten times as many"),),
            figures={**CPU, "wall_seconds": "s"},
            per="sessions",
        ),
        Benchmark(
            "stop",
            f"the stop of {servers} servers that take {slow:g} s each to end",
            (Side("at once", "stop", fleet), Side("one by one", "stop", (*fleet, "--each"))),
            (Comparison("at once", "one by one", "wall_seconds", f"stop of {servers} slow servers, over one by one"),),
            rounds=2,
            quick_rounds=1,
            figures={"wall_seconds": "s", "escalated": ""},
        ),
        Benchmark(
            "stream",
            "what an outcome costs and a resident rollout weighs",
            tuple(stream(layer, width) for layer in ("stream", "memory") for width in resident),
            tuple(
                Comparison(
                    f"{layer}, {width:,}",
                    f"{layer}, {resident[0]:,}",
                    "cpu_seconds",
                    f"CPU of an outcome ({layer}), {width:,} resident over {resident[0]}",
                    target=1.2,
                )
                for layer in ("stream", "memory")
                for width in resident[1:]
            ),
            rounds=3,
            figures={**CPU, "filling_each_seconds": "s", "each_bytes": "B", "resumptions": ""},
            per="outcomes",
        ),
    ]


def _rows(quick: bool) -> list[Benchmark]:
    rows = 4000 if quick else 1_000_000

    def pair(name: str, claim: str, title: str) -> Benchmark:
        return Benchmark(
            name,
            f"{claim} {rows:,} rollouts",
            tuple(Side(how, name, arguments_of(how=how, rows=rows)) for how in ("gym_trio", "orjson")),
            (Comparison("gym_trio", "orjson", "cpu_seconds", f"{title}, over parsing the lines alone"),),
            rounds=2,
            quick_rounds=1,
            figures={**CPU, "wall_seconds": "s", "process_peak_bytes": "B"},
            per="rows",
        )

    return [
        pair("resume", "finding what is left of a run of", "resume"),
        pair("aggregate", "the metrics of a run of", "aggregate"),
    ]
