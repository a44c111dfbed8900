"""Figures are taken with what a user gets: no side of a benchmark sets an option that a user would not."""

from __future__ import annotations

import ast
import pathlib
import re
import sys
from collections.abc import Iterator

import pytest

ROOT = pathlib.Path(__file__).parents[2]
SIDES = sorted((ROOT / "benchmarks" / "sides").glob("*.py"))
# What a call of ours may be given by keyword: what the program is about. Limits, loggers, validation, clocks: nothing.
KEYWORDS = {
    "open_server": set(),
    "open_socket_transport": set(),
    "open_supervisor": set(),
    "open_fake_gym": set(),
    "open_lifespan": set(),
    "serve": set(),
    "CancelOnDisconnect": set(),
    "ServerClient": set(),
    "MemoryTransport": {"state"},
    "open_gym": {"serve"},
    "run_examples": {"max_concurrent", "max_resident_tasks"},
    "open_rollout_stream": {"max_concurrent", "max_resident_tasks"},
    "open_session_registry": {"name"},
    "post": {"json"},
    "RunOptions": {"rows", "output", "agents", "num_repeats", "resume"},
    "prepare_run": set(),
    "aggregate_files": set(),
}
POSITIONAL = {"open_server": 1, "open_socket_transport": 0, "open_supervisor": 0, "ServerClient": 0, "open_gym": 1}
# Modules by which a program changes how it runs, not what it does.
MODULES = {"logging", "warnings", "faulthandler", "mmap", "ctypes"}
WORDS = re.compile(r"\b(setswitchinterval|sched_setaffinity|nice|PYTHONOPTIMIZE|GYM_TRIO_(?!READY_FD)\w+)\b|\"-[OX]")


def ours(path: pathlib.Path) -> bool:
    return bool(re.search(r"^\s*(?:import|from) gym_trio\b", path.read_text(), re.MULTILINE))


def name_of(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")


def faults(source: str) -> Iterator[str]:
    """What a program sets that a user would not."""
    for node in ast.walk(ast.parse(source)):
        # A collection before the clock starts is no setting; another threshold, or none, is one.
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "gc" and node.attr != "collect":
            yield f"gc.{node.attr}"
        if isinstance(node, ast.Call) and name_of(node) in KEYWORDS and "hypercorn." not in ast.unparse(node.func):
            name = name_of(node)
            given = {word.arg or "**" for word in node.keywords}
            yield from (f"{name}({word}=…)" for word in sorted(given - KEYWORDS[name]))
            if len(node.args) > POSITIONAL.get(name, 99):
                yield f"{name} is given {len(node.args)} arguments"
        names = [one.name for one in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom):
            names = [node.module or "", *(f"{node.module}.{one.name}" for one in node.names)]
        for name in names:
            first, *rest = name.split(".")
            if first in MODULES or (first == "gc" and rest):
                yield f"imports {name}"
            if first == "gym_trio" and any(part.startswith("_") or part in LIMITS for part in rest):
                yield f"imports {name}"
    yield from (found[0] for found in WORDS.finditer(source))


LIMITS = {"ServeLimits", "TransportSettings", "ProcessOptions"}


@pytest.mark.parametrize("path", [path for path in SIDES if ours(path)], ids=lambda path: path.stem)
def test_a_side_of_ours_sets_nothing_that_a_user_would_not(path: pathlib.Path) -> None:
    """Limits, timeouts, logging, validation and the garbage collector are as they come; nothing private is used."""
    assert list(faults(path.read_text())) == []


@pytest.mark.parametrize(
    "source",
    [
        "gym_trio.open_server(app, limits=limits)",
        "open_socket_transport(settings)",
        "gym_trio.open_gym(CONFIG, serve='memory', overrides=['a=b'])",
        "gym.run_examples(rows, **options)",
        "gc.disable()",
        "from gc import freeze",
        "from gym_trio.http import ServeLimits",
        "from gym_trio.http._limits import anything",
        "os.environ['GYM_TRIO_FAST'] = '1'",
        'subprocess.run([python, "-O", script])',
    ],
)
def test_what_a_user_would_not_set_is_found(source: str) -> None:
    """The check above sees a limit, a private module, a switched-off collector, an interpreter's flag."""
    assert list(faults(source))


@pytest.mark.parametrize("path", [path for path in SIDES if ours(path)], ids=lambda path: path.stem)
def test_what_serves_in_a_side_notices_a_client_that_leaves(path: pathlib.Path) -> None:
    """A side that serves an app of its own puts `CancelOnDisconnect` around it, as the server classes do."""
    source = path.read_text()
    if "open_server" in source or "MemoryTransport" in source:
        assert "CancelOnDisconnect" in source


def test_the_environment_of_the_rollouts_is_a_users() -> None:
    """Blocks have the keys that any configuration has, and the script that the model answers from."""
    sys.path.insert(0, str(ROOT / "benchmarks" / "sides"))
    try:
        from _tool_call import CONFIG
    finally:
        sys.path.pop(0)
    keys = {key for block in CONFIG.values() for kind in block.values() for made in kind.values() for key in made}
    assert keys == {"entrypoint", "domain", "resources_server", "model_server", "replies"}


def test_a_side_runs_under_a_plain_interpreter(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the caller's environment says to the interpreter does not reach a side."""
    sys.path.insert(0, str(ROOT))
    try:
        from benchmarks import _processes
    finally:
        sys.path.pop(0)
    for name in _processes.INTERPRETER_SETTINGS:
        monkeypatch.setenv(name, "1")
    assert not set(_processes.environment_of_a_side("token")) & set(_processes.INTERPRETER_SETTINGS)
