from __future__ import annotations

import pathlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

import attrs
import orjson
import pytest
import trio

from gym_trio.cli._app import run_command


@attrs.frozen
class Ran:
    code: int
    out: str
    err: str


Run = Callable[..., Ran]


@pytest.fixture
def run(capsysbinary: Any, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """``run("eval", "run", ...)``: one command line in an empty folder; exit code and what it printed."""
    monkeypatch.chdir(tmp_path)
    for name in ("POLICY_API_KEY", "OPENAI_API_KEY", "GYM_TRIO_HEAD_TOKEN", "NEMO_GYM_EXTRA_ROOTS"):
        monkeypatch.delenv(name, raising=False)

    def ran(*words: Any) -> Ran:
        code = run_command([str(word) for word in words])
        captured = capsysbinary.readouterr()
        return Ran(code, captured.out.decode(), captured.err.decode())

    return ran


@pytest.fixture
def scripted(tmp_path: pathlib.Path) -> Callable[..., pathlib.Path]:
    """``scripted(reply, ...)``: a configuration file whose policy model says these texts, one per call."""

    def written(*texts: str) -> pathlib.Path:
        replies = [
            [{"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]}]
            for text in texts
        ]
        path = tmp_path / "model.yaml"
        content = {"policy_model": {"responses_api_models": {"scripted_model": {"replies": replies}}}}
        path.write_bytes(orjson.dumps(content))
        return path

    return written


def rows_in(path: pathlib.Path) -> list[dict[str, Any]]:
    return [orjson.loads(line) for line in path.read_bytes().splitlines()]


@pytest.fixture
def read_rows() -> Callable[[pathlib.Path], list[dict[str, Any]]]:
    return rows_in


@pytest.fixture
def endpoint() -> Iterator[Callable[[Callable[[bytes], bytes]], str]]:
    """``endpoint(answer)``: the URL of a peer that answers a request's head with these bytes and then closes."""
    stops: list[Callable[[], None]] = []
    threads: list[threading.Thread] = []

    def start(answer: Callable[[bytes], bytes]) -> str:
        started = threading.Event()
        found: list[int] = []

        async def handle(stream: trio.SocketStream) -> None:
            async with stream:
                head = b""
                while b"\r\n\r\n" not in head:
                    received = await stream.receive_some()
                    if not received:
                        return
                    head += received
                await stream.send_all(answer(head))

        async def main() -> None:
            token = trio.lowlevel.current_trio_token()
            async with trio.open_nursery() as nursery:
                listeners = await nursery.start(trio.serve_tcp, handle, 0)
                found.append(listeners[0].socket.getsockname()[1])
                stops.append(lambda: token.run_sync_soon(nursery.cancel_scope.cancel))
                started.set()

        thread = threading.Thread(target=trio.run, args=(main,))
        thread.start()
        threads.append(thread)
        started.wait()
        return f"http://127.0.0.1:{found[0]}/v1"

    yield start
    for stop in stops:
        stop()
    for thread in threads:
        thread.join()
