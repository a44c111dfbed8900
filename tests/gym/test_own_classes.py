"""A class of the user's own that cannot be made is named with its block, and with what would be right."""

from __future__ import annotations

import pathlib

import pytest

import gym_trio

CLASSES = """
import gym_trio

class TakesNothing(gym_trio.ResourcesServer):
    def __init__(self):
        super().__init__(name="mine")

class KeepsToItself(gym_trio.ResourcesServer):
    def __init__(self, **options):
        self.table = {}

class Breaks(gym_trio.ResourcesServer):
    settings_type = None

    def __init__(self, **options):
        super().__init__(**options)
        self.table = len(5)

class Fine(gym_trio.ResourcesServer):
    def __init__(self, **options):
        super().__init__(**options)
        self.table = {}
"""


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("TakesNothing", "unexpected keyword argument 'name'; its __init__ must take **options"),
        ("KeepsToItself", "its __init__ must take **options and hand them to super"),
        ("Breaks", r"object of type 'int' has no len\(\)"),
    ],
)
async def test_a_class_that_cannot_be_made_is_named(tmp_path: pathlib.Path, name: str, says: str) -> None:
    """The error has the block and what the constructor said; nothing is started."""
    (tmp_path / "classes.py").write_text(CLASSES)
    config = {"mine": {"resources_servers": {"mine": {"entrypoint": f"{tmp_path}/classes.py:{name}"}}}}
    with pytest.raises(gym_trio.ConfigError, match=f"mine.resources_servers.mine: {name} cannot be made") as error:
        async with gym_trio.open_gym(config):
            pass
    assert error.match(says.replace("**", r"\*\*"))


async def test_a_constructor_of_its_own_is_no_hindrance(tmp_path: pathlib.Path) -> None:
    """One that hands its options on is called as any other."""
    (tmp_path / "classes.py").write_text(CLASSES)
    config = {"mine": {"resources_servers": {"mine": {"entrypoint": f"{tmp_path}/classes.py:Fine"}}}}
    async with gym_trio.open_gym(config) as gym:
        assert (await gym.post("mine", "/seed_session", json={})).status == 200
