"""Which room may import which: the list below is the architecture, top first."""

from __future__ import annotations

import ast
import pathlib

import pytest

PACKAGE = pathlib.Path(__file__).parent.parent / "gym_trio"

# A room may import the rooms before its own line, and itself.
ORDER = [
    {"errors", "remember", "threads"},
    {"telemetry"},
    {"metrics"},
    {"config"},
    {"http"},
    {"rollouts"},
    {"sessions"},
    {"processes"},
    {"servers"},
    {"agents", "models", "environments"},
    {"capture"},
    {"collection"},
    {"gym"},
    {"testing"},
    {"cli"},
]
LEVEL = {room: level for level, rooms in enumerate(ORDER) for room in rooms}
FILES = sorted(PACKAGE.rglob("*.py"))


def room_of(path: pathlib.Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imported_rooms(path: pathlib.Path) -> set[str]:
    inside = ["gym_trio", *path.relative_to(PACKAGE).with_suffix("").parts][:-1]
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = inside[: len(inside) - node.level + 1] if node.level else []
            stem = ".".join([*base, *([node.module] if node.module else [])])
            names = [f"{stem}.{alias.name}" for alias in node.names]
        found |= {name.split(".")[1] for name in names if name.startswith("gym_trio.")}
    return found & set(LEVEL)


def allowed(importer: str, imported: str) -> bool:
    return importer == imported or LEVEL[imported] < LEVEL[importer]


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_a_room_imports_only_from_rooms_above_it(path: pathlib.Path) -> None:
    room = room_of(path)
    if room in ("__init__", "__main__"):
        return
    wrong = {other for other in imported_rooms(path) if not allowed(room, other)}
    assert not wrong, f"{path} ({room}) imports {sorted(wrong)}"


def test_every_module_stands_in_a_room() -> None:
    assert {room_of(path) for path in FILES} <= {*LEVEL, "__init__", "__main__"}


def test_the_check_sees_relative_and_absolute_imports(tmp_path: pathlib.Path) -> None:
    probe = PACKAGE / "errors.py"
    assert imported_rooms(probe) == set()
    assert not allowed("errors", "config")
    assert not allowed("agents", "models")
    assert allowed("cli", "gym")
    assert "errors" in imported_rooms(PACKAGE / "__init__.py")
