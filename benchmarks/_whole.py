"""The benchmarks of a whole program, most of them against NeMo Gym: its start, its size, its rollouts."""

from __future__ import annotations

from ._records import CPU, Benchmark, Comparison, Side, arguments_of

__all__ = ["rollouts", "start"]


def start() -> list[Benchmark]:
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
                Comparison(
                    "gym_trio.open_gym",
                    "trio and httpx",
                    "cpu_seconds",
                    "import of open_gym, over trio and httpx",
                ),
            ),
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
            figures={"packages": "", "size_bytes": "B"},
        ),
        Benchmark(
            "cold",
            "from the command to the first scored rollout on disk, with a scripted model",
            (Side("gym_trio", "cold_gym_trio"), Side("nemo_gym", "cold_nemo_gym", (), "nemo_gym")),
            (
                Comparison("gym_trio", "nemo_gym", "wall_seconds", "first rollout, over NeMo Gym"),
                Comparison("gym_trio", "nemo_gym", "tree_cpu_seconds", "CPU until the first rollout, over NeMo Gym"),
            ),
            rounds=2,
            quick_rounds=1,
            figures={"wall_seconds": "s", "tree_cpu_seconds": "s"},
        ),
    ]


def rollouts(quick: bool) -> list[Benchmark]:
    count = 128 if quick else 4000
    widths = (16, 64) if quick else (64, 1024, 4096)
    least, most = f"{widths[0]:,}", f"{widths[-1]:,}"
    # NeMo Gym takes a quarter of a minute to start and two minutes for 4,000: in a quick run it goes once. This side is
    # through in seconds, and its widths are compared with each other.
    against = widths[-1:] if quick else widths
    times = 1 if quick else 2
    sides = []
    for width in widths:
        asked = arguments_of(rollouts=count, concurrent=width)
        sides += [
            Side(f"sockets, {width:,}", "rollouts_gym_trio", ("--serve", "processes", *asked), times=times),
            Side(f"memory, {width:,}", "rollouts_gym_trio", ("--serve", "memory", *asked), times=times),
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
            # One round is eight minutes on two cores, most of it NeMo Gym's.
            rounds=2,
            quick_rounds=1,
            figures={cpu: "s", "tree_wall_seconds": "s", memory: "B"},
            per="rollouts",
        )
    ]
