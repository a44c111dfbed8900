"""How a server says that it is ready: a line on a pipe, or any answer at a URL that is not a server error."""

from __future__ import annotations

import ssl
import urllib.parse

import trio

from ..errors import UsageError

FIRST_PAUSE_SECONDS = 0.02
LONGEST_PAUSE_SECONDS = 0.5
ATTEMPT_SECONDS = 5.0
MAX_LINE_BYTES = 4096


class ReadyUrl:
    """Asks a URL until it answers.

    ``problem`` says why it is not ready yet. **Cancellation**: `wait` has no bound of its own; the caller sets one.
    """

    def __init__(self, url: str) -> None:
        parts = urllib.parse.urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise UsageError(f"ready_url must be an http or https URL with a host, not {url!r}")
        self._url = url
        self._host = parts.hostname
        self._port = parts.port or (443 if parts.scheme == "https" else 80)
        self._tls = parts.scheme == "https"
        target = urllib.parse.urlunsplit(("", "", parts.path or "/", parts.query, ""))
        self._request = f"GET {target} HTTP/1.1\r\nhost: {parts.netloc}\r\nconnection: close\r\n\r\n".encode()
        self.problem = f"{url} was not asked yet"

    async def wait(self) -> None:
        pause_seconds = FIRST_PAUSE_SECONDS
        while not await self._ask():
            await trio.sleep(pause_seconds)
            pause_seconds = min(2 * pause_seconds, LONGEST_PAUSE_SECONDS)

    async def _ask(self) -> bool:
        self.problem = f"{self._url} did not answer within {ATTEMPT_SECONDS:g} s"
        with trio.move_on_after(ATTEMPT_SECONDS):
            try:
                status = await self._status()
            except (OSError, trio.BrokenResourceError) as exc:
                self.problem = f"{self._url} was not reached: {exc}"
                return False
            self.problem = f"{self._url} answered {status or 'what is not HTTP'}"
            return 100 <= status < 500
        return False

    async def _status(self) -> int:
        """Return the status of one GET; 0 when what came back is not HTTP."""
        stream: trio.abc.Stream = await trio.open_tcp_stream(self._host, self._port)
        if self._tls:
            # Whether a server on this machine is up is all that is asked, so its certificate does not matter.
            stream = trio.SSLStream(stream, ssl._create_unverified_context(), server_hostname=self._host)
        try:
            await stream.send_all(self._request)
            answer = b""
            while b"\n" not in answer and len(answer) < MAX_LINE_BYTES:
                data = await stream.receive_some(MAX_LINE_BYTES)
                if not data:
                    break
                answer += data
        finally:
            await trio.aclose_forcefully(stream)
        protocol, _, rest = answer.partition(b" ")
        return int(rest[:3]) if protocol.startswith(b"HTTP/") and rest[:3].isdigit() else 0


class ReadyPipe:
    """The pipe that a server writes a line to when it is ready.

    **Ownership**: owns the read end ``fd`` until `close`.
    """

    def __init__(self, fd: int) -> None:
        self._stream = trio.lowlevel.FdStream(fd)

    async def wait(self) -> str | None:
        """Return the line, which ends with the pipe if it has no newline; None when the pipe ended without one."""
        data = b""
        while b"\n" not in data and len(data) < MAX_LINE_BYTES:
            more = await self._stream.receive_some(MAX_LINE_BYTES)
            if not more:
                break
            data += more
        return data.partition(b"\n")[0].decode("utf-8", "replace") if data else None

    def close(self) -> None:
        self._stream.close()
