"""OpenEnv's own server, in a Python of its own: its dependencies (mcp below 2) do not go with gym_trio's."""

from __future__ import annotations

import pathlib
import signal
import socket
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

import attrs
import httpx
import pytest
import trio

from gym_trio.environments import _openenv_child

HERE = pathlib.Path(__file__).parent


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The first test that needs the other Python also waits until it is made."""
    for item in items:
        if "python_of_openenv" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.timeout(900))
            return


@pytest.fixture(scope="session")
def python_of_openenv(made_python: Callable[[str], str]) -> str:
    """A Python with openenv."""
    return made_python("openenv")


@attrs.frozen
class Games:
    """The server of ``games.py``, and what it says of its sessions."""

    url: str

    async def sessions(self) -> dict[str, int]:
        async with httpx.AsyncClient(verify=False) as client:  # it would read all certificates each time
            counts: dict[str, int] = (await client.get(f"{self.url}/sessions")).json()
            return counts

    async def settled(self, open_now: int = 0) -> dict[str, int]:
        """Return once so many are open: the server learns of an end by a socket, and has its steps to finish."""
        with trio.fail_after(20):
            while True:
                counts = await self.sessions()
                if counts["open"] == open_now:
                    return counts
                await trio.sleep(0.02)  # each question takes processor time from what it asks about


@pytest.fixture(scope="session")
def games(python_of_openenv: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Games]:
    """All environments of ``games.py``, served for the whole of the tests."""
    log = tmp_path_factory.mktemp("openenv") / "log"
    with socket.socket() as listener, log.open("wb") as output:
        listener.bind(("127.0.0.1", 0))
        listener.listen(100)
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        command = [python_of_openenv, _openenv_child.__file__, str(listener.fileno()), "games:app"]
        process = subprocess.Popen(
            command, cwd=HERE, pass_fds=[listener.fileno()], stdin=subprocess.DEVNULL, stdout=output, stderr=output
        )
    try:
        _wait_healthy(url, process, log)
        yield Games(url)
    finally:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait_healthy(url: str, process: subprocess.Popen[bytes], log: pathlib.Path) -> None:
    ends = time.monotonic() + 60
    while True:
        assert process.poll() is None, log.read_text()
        try:
            with urllib.request.urlopen(f"{url}/health", timeout=10):
                return
        except OSError:
            assert time.monotonic() < ends, log.read_text()
            time.sleep(0.05)


def say(text: str) -> list[dict[str, Any]]:
    return [{"type": "message", "role": "assistant", "content": text}]


def config_of(replies: list[list[dict[str, Any]]], agent: dict[str, Any], **block: Any) -> dict[str, Any]:
    return {
        "game": {"resources_servers": {"openenv": {"domain": "games", **block}}},
        "game_agent": {
            "responses_api_agents": {
                "gymnasium_agent": {
                    "resources_server": {"type": "resources_servers", "name": "game"},
                    "model_server": {"type": "responses_api_models", "name": "policy_model"},
                    **agent,
                }
            }
        },
        "policy_model": {"responses_api_models": {"scripted_model": {"replies": replies}}},
    }


@pytest.fixture(scope="session")
def saying() -> Callable[[str], list[dict[str, Any]]]:
    return say


@pytest.fixture(scope="session")
def scripted() -> Callable[..., dict[str, Any]]:
    """``scripted(["text", ...], base_url=..., agent={...})``: a configuration whose model says these texts."""

    def made(replies: list[Any], agent: dict[str, Any] | None = None, **block: Any) -> dict[str, Any]:
        return config_of([say(one) if isinstance(one, str) else one for one in replies], agent or {}, **block)

    return made


@pytest.fixture
def unused_url() -> Iterator[str]:
    """Where nobody listens."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{bound.getsockname()[1]}"
