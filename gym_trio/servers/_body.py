"""What a handler is given, and how its answer or its error becomes a response: the JSON boundary of all servers."""

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping
from typing import Any

import attrs
import orjson

from .. import errors, telemetry
from ..http import Answer
from ._authored import pending, sparing
from ._failures import failure_of, failure_to_wire, sole_cause
from ._stage_times import StageTimes

__all__ = [
    "DirectEndpoint",
    "JsonEndpoint",
    "Reply",
    "RequestBody",
    "encode_default",
    "encode_json",
    "orjson_bytes",
    "parse_cookies",
    "parse_object",
    "read_body",
    "send_content",
    "send_json",
]

HeaderList = list[tuple[bytes, bytes]]
PathParams = dict[str, str]
Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

logger = logging.getLogger("gym_trio.servers")

JSON_CONTENT = (b"content-type", b"application/json")
_NO_HEADERS: tuple[tuple[bytes, bytes], ...] = ()


class RequestBody(dict[str, Any]):
    """A request's JSON object, as handlers get it: a dict whose keys can also be read as attributes.

    ``cookies`` are the request's cookies by name; a handler that changes them changes what is set on the response.
    ``headers`` are its headers, names in lower case. ``rollout_id`` comes from the ``/ng-rollout/<id>/`` prefix, the
    body's ``_ng_rollout_id`` or the ``x-ng-rollout-id`` header, in this order, or is ``None``. ``stages`` takes the
    times of the rollout that the request is part of.
    ``path_params`` are the values that the route's pattern took from the path. ``agent_session`` is the state of the
    agent session that the request belongs to (what the agent's ``open_session`` returned), or ``None``.

    **Ownership**: the handler owns the object and may change it.
    """

    __slots__ = ("_cookies", "_headers", "_sent_cookies", "_stages", "agent_session", "path_params", "rollout_id")

    def __init__(
        self,
        body: Mapping[str, Any] | None = None,
        headers: Iterable[tuple[bytes, bytes]] = (),
        path_params: Mapping[str, Any] | None = None,
        cookies: Mapping[str, str] | None = None,
        rollout_id: str | None = None,
        stages: StageTimes | None = None,
    ) -> None:
        # Here and below an attribute is read once: because of `__getattr__` that takes ten times as long as elsewhere.
        given: Mapping[str, Any] = body or {}
        dict.update(self, given)
        path_params = path_params or {}
        self._headers = headers
        self.path_params: Mapping[str, Any] = path_params
        # Most handlers ask for some of these only, and a rollout is six requests.
        self._sent_cookies: dict[str, str] | None = None if cookies is None else dict(cookies)
        self._cookies: dict[str, str] | None = None
        self._stages = stages
        found: str | None = rollout_id or path_params.get("rollout_id") or given.get("_ng_rollout_id")
        self.rollout_id = self.header("x-ng-rollout-id") if found is None else found
        self.agent_session: Any = None

    @property
    def sent_cookies(self) -> dict[str, str]:
        """The cookies as they came."""
        sent = self._sent_cookies
        if sent is None:
            sent = self._sent_cookies = parse_cookies(self._headers)
        return sent

    @property
    def cookies(self) -> dict[str, str]:
        cookies = self._cookies
        if cookies is None:
            cookies = self._cookies = dict(self.sent_cookies)
        return cookies

    def changed_cookies(self) -> dict[str, str]:
        """Those that the response has to set."""
        cookies, sent = self._cookies, self._sent_cookies
        if cookies is None or sent is None or cookies == sent:
            return {}
        return {name: value for name, value in cookies.items() if sent.get(name) != value}

    @property
    def stages(self) -> StageTimes:
        stages = self._stages
        if stages is None:
            stages = self._stages = StageTimes()
        return stages

    def within(self, agent_session: Any, cookies: Mapping[str, str]) -> RequestBody:
        """The same request as one of an agent session, with cookies of its own."""
        inner = RequestBody(
            self, headers=self._headers, path_params=self.path_params, cookies=cookies, rollout_id=self.rollout_id
        )
        inner.agent_session = agent_session
        return inner

    def header(self, name: str) -> str | None:
        """One header's value, the first if it is repeated."""
        wanted = name.encode("latin-1")
        for key, value in self._headers:
            if key == wanted:
                return value.decode("latin-1")
        return None

    @property
    def headers(self) -> dict[str, str]:
        """The headers as text, names in lower case; of a repeated one, the last."""
        return {name.decode("latin-1"): value.decode("latin-1") for name, value in self._headers}

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(f"the request has no key {name!r}; it has {sorted(self)}") from None


@attrs.frozen
class Reply:
    """A handler's answer when a bare JSON value is not enough. ``body`` is JSON unless it is bytes."""

    body: Any
    status: int = 200
    headers: tuple[tuple[bytes, bytes], ...] = ()


def parse_cookies(headers: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    """The cookies of a request by name. What is not a cookie is passed over, as browsers' servers do."""
    found: dict[str, str] = {}
    for name, value in headers:
        if name == b"cookie":
            for part in value.decode("latin-1").split(";"):
                key, sign, content = part.strip().partition("=")
                if sign:
                    found[key] = content.strip('"')
    return found


async def read_body(receive: Receive) -> bytes:
    """The whole body of a request.

    **Errors**: `errors.PeerDropped` when the client leaves before it has sent all of it.
    """
    message = await receive()
    if message["type"] == "http.request" and not message.get("more_body", False):
        body: bytes = message.get("body", b"")
        return body
    parts: list[bytes] = []
    while message["type"] == "http.request":
        parts.append(message.get("body", b""))
        if not message.get("more_body", False):
            return b"".join(parts)
        message = await receive()
    raise errors.PeerDropped("the client left before its request was complete")


async def send_json(send: Send, status: int, body: Any, headers: Iterable[tuple[bytes, bytes]] = ()) -> None:
    """Answer with one JSON document."""
    await send_content(send, status, (JSON_CONTENT, *headers), encode_json(body))


async def send_content(send: Send, status: int, headers: Iterable[tuple[bytes, bytes]], content: bytes) -> None:
    """Answer with ``content``, whose length is said."""
    length = (b"content-length", b"%d" % len(content))
    await send({"type": "http.response.start", "status": status, "headers": [*headers, length]})
    await send({"type": "http.response.body", "body": content})


def orjson_bytes(body: Any, default: Callable[[Any], Any] | None = None) -> bytes:
    """One JSON document by orjson alone, with keys of any kind. **Errors**: `TypeError` for what it has no form for."""
    try:
        return orjson.dumps(body, default=default)
    except TypeError:
        # Nearly all keys are texts, and told to look for others the encoder takes nearly twice as long.
        return orjson.dumps(body, option=orjson.OPT_NON_STR_KEYS, default=default)


def encode_json(body: Any) -> bytes:
    """One JSON document. **Errors**: `TypeError` for what JSON has no form for."""
    try:
        return orjson_bytes(body, default=encode_default)
    except TypeError:
        # Integers over 64 bits and lone surrogates, which another server may have written: what it said is handed on.
        return json.dumps(body, default=encode_default).encode("ascii")


def encode_default(value: Any) -> Any:
    """What JSON has no form for: mappings and attrs objects become objects. **Errors**: `TypeError`."""
    if isinstance(value, Mapping):
        return dict(value)
    if attrs.has(type(value)):
        return attrs.asdict(value, recurse=False)
    raise TypeError(f"a {type(value).__name__} cannot be written as JSON")


class DirectEndpoint:
    """An ASGI endpoint that can answer from headers and body alone, until a sub-class overrides ``__call__``."""

    def direct(self, headers: HeaderList, path_params: PathParams, content: bytes) -> Awaitable[Answer] | None:
        """The answer to a request with ``content`` for its body; None, and nothing has been done, where it needs more.

        **Ownership**: the endpoint keeps ``content`` no longer than it needs it.
        """
        raise NotImplementedError


class JsonEndpoint(DirectEndpoint):
    """An ASGI endpoint around ``handler(request) -> JSON value | Reply``; bytes are JSON already.

    ``stage`` is the stage that an unexpected exception of the handler is reported under, and ``kind`` its failure kind.

    **Errors**: a body that is no JSON object is a 422 (400 when it is no JSON at all); what the handler raises becomes
    a response, once, here: `RequestRefused` and the session errors their own status, anything else a failure in the
    form of `failure_to_wire`. A handler's exception never ends the server.

    **Cancellation**: passes through; nothing is answered.
    """

    def __init__(
        self,
        handler: Callable[[RequestBody], Awaitable[Any]],
        *,
        server: str,
        stage: str = errors.Stage.AGENT,
        kind: str = errors.FailureKind.AGENT_RUN_ERROR,
    ) -> None:
        self._handler = handler
        self._server = server
        self._stage = stage
        self._kind = kind

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            content = await read_body(receive)
        except errors.PeerDropped:
            return
        answering = self.direct(scope["headers"], scope.get("path_params") or {}, content)
        del content  # a handler may wait for long
        await send_content(send, *await answering)

    async def direct(self, headers: HeaderList, path_params: PathParams, content: bytes) -> Answer:
        request: RequestBody | None = None
        given = _NO_HEADERS
        try:
            body = parse_object(content) if content else {}
            content = b""
            # By position: to name the arguments costs a third of what the object does.
            request = RequestBody(body, headers, path_params)
            if telemetry.is_used():
                with telemetry.remote_context(headers):
                    answer = await pending(self._handler(request))
            else:
                answer = await pending(self._handler(request))
            status = 200
            if type(answer) is Reply:
                status, given, answer = answer.status, answer.headers, answer.body
            content = answer if type(answer) is bytes else encode_json(answer)
        except BaseException as raised:
            error = sparing(raised)
            if not isinstance(error, errors.GymError):
                logger.error("server %s: a handler raised", self._server, exc_info=True)
            status, answer = self._error_answer(error)
            given, content = _NO_HEADERS, encode_json(answer)
        changed = request.changed_cookies() if request is not None else None
        if changed:
            given = (*given, *[_cookie_header(name, value) for name, value in changed.items()])
        return status, (JSON_CONTENT, *given), content

    def _error_answer(self, error: Exception) -> tuple[int, dict[str, Any]]:
        error = sole_cause(error)
        if isinstance(error, errors.RequestRefused):
            return error.status, {"detail": error.detail}
        for kind, status in _SESSION_STATUS:
            if isinstance(error, kind):
                return status, {"detail": str(error)}
        return failure_to_wire(failure_of(error, kind=self._kind, stage=self._stage))


_SESSION_STATUS: tuple[tuple[type[Exception], int], ...] = (
    (errors.SessionConflict, 409),
    (errors.SessionsDraining, 503),
    (errors.SessionCloseFailed, 500),
)


def parse_object(content: bytes) -> dict[str, Any]:
    """The JSON object of a request. **Errors**: `RequestRefused`, 400 for no JSON, 422 for what is no object."""
    try:
        value = orjson.loads(content)
    except orjson.JSONDecodeError as error:
        raise errors.RequestRefused(400, f"the body is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise errors.RequestRefused(422, f"the body must be a JSON object, not a {type(value).__name__}")
    return value


def _cookie_header(name: str, value: str) -> tuple[bytes, bytes]:
    return b"set-cookie", f"{name}={value}; Path=/; HttpOnly; SameSite=lax".encode("latin-1")
