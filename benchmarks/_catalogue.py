"""The benchmarks by name."""

from __future__ import annotations

from ._records import Benchmark, Comparison, Partner, Side

__all__ = ["catalogue"]


def catalogue(*, quick: bool = False) -> dict[str, Benchmark]:
    """All of them; with ``quick``, in sizes that prove that they work and measure little."""
    made = [*_http(quick), *_held(quick), *_stopping(quick), *_rows(quick), *_start(), *_rollouts(quick)]
    return {benchmark.name: benchmark for benchmark in made}


def _arguments(**values: object) -> tuple[str, ...]:
    words: list[str] = []
    for name, value in values.items():
        words += [f"--{name.replace('_', '-')}", str(value)]
    return tuple(words)


CPU = {"cpu_seconds": "s"}


def _http(quick: bool) -> list[Benchmark]:
    tasks = 32 if quick else 256
    asked = _arguments(tasks=tasks, requests=1024 if quick else 32768)
    fewer = _arguments(tasks=tasks, requests=128 if quick else 1024)
    load = Partner("load", "load", _arguments(connections=64, requests=1024 if quick else 16384))
    inside = _arguments(tasks=tasks, requests=1024 if quick else 16384)
    echo = Partner("before", "echo")
    return [
        Benchmark(
            "client",
            "CPU of one echo POST of 1 kB from 256 tasks",
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


def _start() -> list[Benchmark]:
    def side(name: str, what: str, peer: str | None = None) -> Side:
        return Side(name, "import_it", ("--what", what), peer)

    return [
        Benchmark(
            "import",
            "CPU of the import",
            (
                side("gym_trio", "gym_trio"),
                side("gym_trio.open_gym", "open_gym"),
                side("trio and httpx", "trio_httpx"),
                side("nemo_gym", "nemo_gym", "nemo_gym"),
            ),
            (
                Comparison("gym_trio", "nemo_gym", "cpu_seconds", "import, over NeMo Gym", target=0.05),
                Comparison("gym_trio", "trio and httpx", "cpu_seconds", "import, over trio and httpx", target=1.3),
                Comparison(
                    "gym_trio.open_gym", "nemo_gym", "cpu_seconds", "import of open_gym, over NeMo Gym", target=0.05
                ),
                Comparison(
                    "gym_trio.open_gym",
                    "trio and httpx",
                    "cpu_seconds",
                    "import of open_gym, over trio and httpx",
                    target=1.3,
                ),
            ),
            quick_rounds=2,
            figures={**CPU, "process_peak_bytes": "B"},
        ),
        Benchmark(
            "install",
            "packages and bytes of an install",
            (Side("gym_trio", "install"), Side("nemo_gym", "install", ("--what", "peer"), "nemo_gym")),
            (
                Comparison("gym_trio", "nemo_gym", "size_bytes", "installed size, over NeMo Gym"),
                Comparison("gym_trio", "nemo_gym", "packages", "installed packages, over NeMo Gym"),
            ),
            rounds=1,
            quick_rounds=1,
            figures={"packages": "", "size_bytes": "B", "wall_seconds": "s"},
        ),
        Benchmark(
            "cold",
            "from the command to the first scored rollout on disk, with a scripted model",
            (Side("gym_trio", "cold_gym_trio"), Side("nemo_gym", "cold_nemo_gym", (), "nemo_gym")),
            (
                Comparison("gym_trio", "nemo_gym", "wall_seconds", "first rollout, over NeMo Gym"),
                Comparison("gym_trio", "nemo_gym", "tree_cpu_seconds", "CPU until the first rollout, over NeMo Gym"),
            ),
            rounds=3,
            quick_rounds=1,
            figures={"wall_seconds": "s", "tree_cpu_seconds": "s"},
        ),
    ]


def _held(quick: bool) -> list[Benchmark]:
    many = 1024 if quick else 16384
    held = Partner("before", "echo", _arguments(hold=0.2 if quick else 2.0))
    asked = _arguments(requests=many)
    again = (*_arguments(requests=many * 4), "--warm")
    echo = Partner("before", "echo")
    return [
        Benchmark(
            "hold",
            f"{many:,} POSTs in flight, each held for a while by the server",
            (
                Side("gym_trio", "hold_gym_trio", (*asked, "--in-flight", str(many)), None, held),
                Side("aiohttp", "hold_aiohttp", asked, "aiohttp", held),
                Side("all at once", "hold_gym_trio", (*again, "--in-flight", str(many)), None, echo),
                Side("256 at a time", "hold_gym_trio", (*again, "--in-flight", "256"), None, echo),
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
    resident = (256, 1024) if quick else (256, 16384)
    outcomes = 4096 if quick else 65536
    fleet = _arguments(servers=3, slow=0.3) if quick else _arguments(servers=8, slow=0.9)
    many = _arguments(requests=100, cancelled=80) if quick else ()

    def stream(layer: str, width: int) -> Side:
        return Side(f"{layer}, {width:,}", "stream", _arguments(layer=layer, resident=width, rows=outcomes))

    return [
        Benchmark(
            "cancel",
            "from the cancellation of a request to that of its handler",
            (
                Side("one", "cancel_one", _arguments(requests=50 if quick else 200)),
                Side("many", "cancel_many", (*many, "--server", "gym_trio")),
                Side("many, hypercorn", "cancel_many", (*many, "--server", "hypercorn"), "hypercorn"),
            ),
            (
                Comparison(
                    "many", "many, hypercorn", "wall_seconds", "800 of 1,000 cancelled, over hypercorn", target=0.6
                ),
            ),
            figures={"median_seconds": "s", "worst_seconds": "s", "wall_seconds": "s"},
            bounds={"median_seconds": ("one", 1e-3)},
        ),
        Benchmark(
            "sessions",
            f"the drain of {sessions:,} sessions",
            (
                Side("in one", "sessions", _arguments(sessions=sessions, registries=1)),
                Side("in ten", "sessions", _arguments(sessions=sessions, registries=10)),
            ),
            (Comparison("in one", "in ten", "cpu_seconds", "drain of a session, among ten times as many"),),
            figures={**CPU, "wall_seconds": "s"},
            per="sessions",
        ),
        Benchmark(
            "stop",
            "the stop of eight servers that take 0.9 s each to end",
            (Side("at once", "stop", fleet), Side("one by one", "stop", (*fleet, "--each"))),
            (Comparison("at once", "one by one", "wall_seconds", "stop of eight slow servers, over one by one"),),
            rounds=3,
            quick_rounds=1,
            figures={"wall_seconds": "s", "escalated": ""},
        ),
        Benchmark(
            "stream",
            "what an outcome costs and a resident rollout weighs",
            tuple(stream(layer, width) for layer in ("stream", "memory") for width in resident),
            tuple(
                Comparison(
                    f"{layer}, {resident[1]:,}",
                    f"{layer}, {resident[0]:,}",
                    "cpu_seconds",
                    f"CPU of an outcome ({layer}), {resident[1]:,} resident over {resident[0]}",
                    target=1.2,
                )
                for layer in ("stream", "memory")
            ),
            rounds=3,
            figures={**CPU, "each_bytes": "B", "resumptions": ""},
            per="outcomes",
        ),
    ]


def _rows(quick: bool) -> list[Benchmark]:
    rows = 4000 if quick else 1_000_000

    def pair(name: str, claim: str, title: str) -> Benchmark:
        return Benchmark(
            name,
            f"{claim} {rows:,} rollouts",
            tuple(Side(how, name, _arguments(how=how, rows=rows)) for how in ("gym_trio", "orjson")),
            (Comparison("gym_trio", "orjson", "cpu_seconds", f"{title}, over parsing the lines alone"),),
            rounds=3,
            quick_rounds=1,
            figures={**CPU, "wall_seconds": "s", "process_peak_bytes": "B"},
            per="rows",
        )

    return [
        pair("resume", "finding what is left of a run of", "resume"),
        pair("aggregate", "the metrics of a run of", "aggregate"),
    ]


def _rollouts(quick: bool) -> list[Benchmark]:
    count = 128 if quick else 4000
    widths = (16, 64) if quick else (64, 1024, 4096)
    least, most = f"{widths[0]:,}", f"{widths[-1]:,}"
    # NeMo Gym takes a quarter of a minute to start and two minutes for 4,000: in a quick run it goes once.
    against = widths[-1:] if quick else widths
    sides = []
    for width in widths:
        asked = _arguments(rollouts=count, concurrent=width)
        sides += [
            Side(f"sockets, {width:,}", "rollouts_gym_trio", ("--serve", "processes", *asked)),
            Side(f"memory, {width:,}", "rollouts_gym_trio", ("--serve", "memory", *asked)),
        ]
        if width in against:
            sides.append(Side(f"nemo_gym, {width:,}", "rollouts_nemo_gym", asked, "nemo_gym"))
    cpu, memory = "tree_cpu_seconds", "tree_peak_bytes"
    over = [
        Comparison(
            f"{where}, {width:,}",
            f"nemo_gym, {width:,}",
            cpu,
            f"CPU of a rollout {how}, over NeMo Gym, {width:,} at once",
            target=aim,
        )
        for width in against
        for where, how, aim in (("sockets", "over sockets", 0.1), ("memory", "in memory", 0.025))
    ]
    # Refused like any other ratio when the results differ: they are equal in memory and over sockets.
    within = [
        Comparison(
            f"memory, {width:,}",
            f"sockets, {width:,}",
            cpu,
            f"CPU of a rollout in memory, over sockets, {width:,} at once",
        )
        for width in widths
    ]
    return [
        Benchmark(
            "rollouts",
            f"{count:,} tool-call rollouts: agent, environment and model, each a server",
            tuple(sides),
            (
                *over,
                *(
                    Comparison(
                        f"sockets, {width:,}",
                        f"nemo_gym, {width:,}",
                        memory,
                        f"memory of all processes, over NeMo Gym, {width:,} at once",
                        target=1 / 3,
                    )
                    for width in against
                ),
                *within,
                *(
                    Comparison(
                        f"{where}, {most}",
                        f"{where}, {least}",
                        cpu,
                        f"CPU of a rollout {how}, {most} at once over {least}",
                        target=1.2,
                    )
                    for where, how in (("sockets", "over sockets"), ("memory", "in memory"))
                ),
            ),
            rounds=3,
            quick_rounds=1,
            figures={cpu: "s", "tree_wall_seconds": "s", memory: "B"},
            per="rollouts",
        )
    ]
