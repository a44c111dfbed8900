"""An OpenEnv server of one's own: started with the environment server, and gone with it."""

from __future__ import annotations

import contextlib
import pathlib
import sys
from collections.abc import AsyncIterator, Mapping, Sequence

import httpx

from ..processes import bind_port, check_port_free, open_supervisor

__all__ = ["open_app", "open_command"]

_CHILD = pathlib.Path(__file__).with_name("_openenv_child.py")


@contextlib.asynccontextmanager
async def open_app(
    name: str,
    app: str,
    *,
    python: str | None,
    cwd: str | None,
    env: Mapping[str, str],
    ready_timeout_seconds: float,
) -> AsyncIterator[str]:
    """Serve ``app`` (``module:name``) with uvicorn in a process of its own on a free port; yield its URL.

    **Errors**: `ServerStartError` with the last lines of the process when it does not come up.

    **Ownership**: the process and its descendants end with the block, and when this process is killed.
    """
    async with open_supervisor() as supervisor:
        with bind_port(name) as listener:
            fd, port = listener.fileno(), listener.getsockname()[1]
            url = f"http://127.0.0.1:{port}"
            command = [python or sys.executable, str(_CHILD), str(fd), app]
            await supervisor.start(
                name,
                command,
                env=env,
                cwd=cwd,
                ready_url=f"{url}/health",
                ready_timeout_seconds=ready_timeout_seconds,
                pass_fds=[fd],
            )
        yield url


@contextlib.asynccontextmanager
async def open_command(
    name: str,
    command: Sequence[str],
    url: str,
    *,
    cwd: str | None,
    env: Mapping[str, str],
    ready_timeout_seconds: float,
) -> AsyncIterator[str]:
    """Run ``command``, which serves at ``url``; as `open_app`. The port must be free before."""
    parsed = httpx.URL(url)
    check_port_free(name, parsed.host, parsed.port or 80, key="base_url")
    async with open_supervisor() as supervisor:
        await supervisor.start(
            name,
            list(command),
            env=env,
            cwd=cwd,
            ready_url=f"{url}/health",
            ready_timeout_seconds=ready_timeout_seconds,
            interrupt="group",
        )
        yield url
