"""The benchmarks by name."""

from __future__ import annotations

from ._records import Benchmark, Comparison, Partner, Side

__all__ = ["catalogue"]


def catalogue(*, quick: bool = False) -> dict[str, Benchmark]:
    """All of them; with ``quick``, in sizes that prove that they work and measure little."""
    made = [*_http(quick), *_start(quick)]
    return {benchmark.name: benchmark for benchmark in made}


def _arguments(**values: object) -> tuple[str, ...]:
    words: list[str] = []
    for name, value in values.items():
        words += [f"--{name.replace('_', '-')}", str(value)]
    return tuple(words)


CPU = {"cpu_seconds": "s"}


def _http(quick: bool) -> list[Benchmark]:
    asked = _arguments(tasks=256, requests=2048 if quick else 32768)
    fewer = _arguments(tasks=256, requests=1024 if quick else 4096)
    load = Partner("load", "load", _arguments(connections=64, requests=1024 if quick else 16384))
    inside = _arguments(tasks=256, requests=2048 if quick else 16384)
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
            "CPU of one JSON POST of 1 kB, client and server together",
            (
                Side("in memory", "memory", (*inside, "--over", "memory")),
                Side("over sockets", "memory", (*inside, "--over", "sockets")),
            ),
            (Comparison("in memory", "over sockets", "cpu_seconds", "POST in memory, over sockets", target=0.2),),
            figures={**CPU, "wall_seconds": "s"},
            per="requests",
        ),
    ]


def _start(quick: bool) -> list[Benchmark]:
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
                Comparison("gym_trio.open_gym", "nemo_gym", "cpu_seconds", "import of open_gym, over NeMo Gym"),
            ),
            rounds=7,
            figures={**CPU, "process_peak_bytes": "B"},
        ),
    ]
