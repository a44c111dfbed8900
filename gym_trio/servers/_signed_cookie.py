"""`SignedCookie`: a session's id in a cookie that only this server can have made."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Awaitable, Callable, Mapping

from ..errors import RequestRefused
from ..remember import remember
from ._body import Message, Receive, Scope, Send, parse_cookies

__all__ = ["CookieEndpoint", "SignedCookie"]

_SIGNATURE_BYTES = 16
_REMEMBERED = 32_768  # values signed here or found good, which every request of a rollout brings again


class SignedCookie:
    """One cookie's name and the secret it is signed with, which is random and lives as long as the server object."""

    def __init__(self, name: str) -> None:
        self.name = name
        # BLAKE2 takes its key itself, so that one short hash does what HMAC needs two long ones for.
        self._keyed = hashlib.blake2b(key=secrets.token_bytes(32), digest_size=_SIGNATURE_BYTES)
        self._good: dict[str, str] = {}
        self._signed: dict[str, str] = {}

    def _value(self, session_id: str) -> str:
        content = session_id.encode("utf-8", "surrogatepass")
        signature = self._keyed.copy()
        signature.update(content)
        return f"{content.hex()}.{signature.hexdigest()}"

    def sign(self, session_id: str) -> str:
        """The cookie's value for ``session_id``; for the empty one, the value that says "no session"."""
        value = self._signed.get(session_id)
        if value is None:
            value = self._value(session_id)
            remember(self._signed, session_id, value, _REMEMBERED)
            remember(self._good, value, session_id, _REMEMBERED)
        return value

    def read(self, cookies: Mapping[str, str]) -> str | None:
        """The session id in a request's cookies; None when there is no cookie, or one that says "no session".

        **Errors**: `RequestRefused` (409) for a value that this server has not signed. It must not count as none: that
        would let a stale request through as one without a session.
        """
        value = cookies.get(self.name)
        if value is None:
            return None
        session_id = self._good.get(value)
        if session_id is None:
            session_id = self._check(value)
            remember(self._good, value, session_id, _REMEMBERED)
        return session_id or None

    def _check(self, value: str) -> str:
        try:
            session_id = bytes.fromhex(value.partition(".")[0]).decode("utf-8", "surrogatepass")
            # The whole text counts: hex has several texts for one content.
            good = hmac.compare_digest(self._value(session_id).encode(), value.encode())
        except ValueError:
            good = False
        if not good:
            raise RequestRefused(409, f"Invalid session cookie {self.name}")
        return session_id

    def header(self, session_id: str) -> tuple[bytes, bytes]:
        return b"set-cookie", f"{self.name}={self.sign(session_id)}; Path=/; HttpOnly; SameSite=lax".encode("ascii")


class CookieEndpoint:
    """An ASGI endpoint whose every answer sets the cookie again: the one that the inner endpoint set, else the one
    that the request brought, else the one that says "no session".

    With ``only_if_sent``, answers to requests without the cookie set none.
    """

    def __init__(
        self,
        inner: Callable[[Scope, Receive, Send], Awaitable[None]],
        cookie: SignedCookie,
        *,
        only_if_sent: bool = False,
    ) -> None:
        self._inner = inner
        self._cookie = cookie
        self._only_if_sent = only_if_sent
        self._prefix = f"{cookie.name}=".encode("ascii")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        cookies = parse_cookies(scope["headers"])
        if self._only_if_sent and self._cookie.name not in cookies:
            await self._inner(scope, receive, send)
            return
        try:
            session_id = self._cookie.read(cookies) or ""
        except RequestRefused:
            session_id = ""

        async def send_with_cookie(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = list(message.get("headers", ()))
                if not any(name == b"set-cookie" and value.startswith(self._prefix) for name, value in headers):
                    message = {**message, "headers": [*headers, self._cookie.header(session_id)]}
            await send(message)

        await self._inner(scope, receive, send_with_cookie)
