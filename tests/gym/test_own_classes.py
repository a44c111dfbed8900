"""A class of the user's own that cannot be made is named with its block, and with what would be right."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys

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


SCRIPT = """
import sys

import gym_trio
import trio


async def main():
    overlaid = {"mine": {"resources_servers": {"mine": {"domain": "games"}}}}
    for config in (sys.argv[2], gym_trio.config.load_config(sys.argv[2])):
        async with gym_trio.open_gym([config, overlaid], sys.argv[1]) as gym:
            print((await gym.post("mine", "/verify", json={"response": {}})).json())


if __name__ == "__main__":
    import gym_trio.config

    trio.run(main)
"""
ENVIRONMENT = """
import gym_trio

from tables import TABLE


class Mine(gym_trio.ResourcesServer):
    def verify(self, session, request):
        return TABLE["reward"]
"""


@pytest.mark.parametrize("serve", ["memory", "processes"])
@pytest.mark.parametrize(("entrypoint", "script"), [("environment.py:Mine", "away"), ("environment:Mine", "home")])
def test_a_class_is_found_wherever_its_server_lives(
    tmp_path: pathlib.Path, serve: str, entrypoint: str, script: str
) -> None:
    """A file beside the configuration, a module beside the script, what they import from beside them; in the workers
    of a plain verifier too, and whatever the working directory is.
    """
    home = tmp_path / "home"
    for folder in (home, tmp_path / "away", tmp_path / "elsewhere"):
        folder.mkdir()
    (tmp_path / script / "script.py").write_text(SCRIPT)
    (home / "tables.py").write_text("TABLE = {'reward': 0.25}\n")
    (home / "environment.py").write_text(ENVIRONMENT)
    (home / "config.yaml").write_text(f"mine: {{resources_servers: {{mine: {{entrypoint: '{entrypoint}'}}}}}}\n")
    ran = subprocess.run(
        [sys.executable, f"../{script}/script.py", serve, "../home/config.yaml"],
        cwd=tmp_path / "elsewhere",
        env={"PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.stdout.count("'reward': 0.25") == 2, ran.stderr
