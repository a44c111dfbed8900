"""`RemoteAgent`: an agent service of someone else, which speaks the Responses API and leaves its tool calls to us."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import AsyncIterator, Mapping
from typing import Any
from urllib.parse import urlsplit

import attrs
import trio

from ..config import InvalidSetting, optional, positive_int, positive_seconds
from ..errors import FailureKind, ResponseError, RolloutFailure, Stage, TransportError
from ..http import Response, ServerClient, TransportSettings, open_socket_transport
from ..servers import AgentServer, RequestBody, ToolCaller, failure_of, input_items, tool_loop

__all__ = ["RemoteAgent", "RemoteAgentSettings"]

SERVICE = "the remote agent"
PATH = "/v1/responses"


def _base_url(instance: Any, attribute: attrs.Attribute[Any], value: str) -> None:
    parts = urlsplit(value)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise InvalidSetting(attribute.name, "must be an http:// or https:// URL with a host")
    if "?" in value or "#" in value:
        raise InvalidSetting(attribute.name, "must have no query and no fragment: a path is put behind it")
    if parts.username or parts.password:
        raise InvalidSetting(attribute.name, "must hold no credentials")


@attrs.frozen(kw_only=True)
class RemoteAgentSettings:
    """The keys of a ``remote_agent`` block besides the common ones; the first four are spelt as in NeMo Gym.

    ``concurrency`` rollouts are under way at once, and waiting for a place counts for none of the bounds.
    """

    agent_base_url: str = attrs.field(validator=_base_url)
    concurrency: int = attrs.field(default=32, validator=positive_int)
    remote_responses_timeout_secs: float = attrs.field(default=1800.0, validator=positive_seconds)
    run_timeout_secs: float = attrs.field(default=2100.0, validator=positive_seconds)
    max_steps: int | None = attrs.field(default=100, validator=optional(positive_int))
    tool_timeout_seconds: float | None = attrs.field(default=None, validator=optional(positive_seconds))
    max_response_bytes: int = attrs.field(default=64 * 2**20, validator=positive_int)


class RemoteAgent(AgentServer):
    """Drives an agent service: ``POST {agent_base_url}/v1/responses``, as often as it leaves function calls open.

    Each request holds the row's parameters with all that was said and done so far behind ``input``. A ``function_call``
    in the answer without its ``function_call_output`` is carried out at the environment; a pair is the service's own
    tool, and is passed on as it is. The service sees neither the environment nor its cookies; cookies of its own are
    sent back to it within the rollout. Redirects are refused. The endings are those of ``simple_agent``.

    **Cancellation**: closes the connection to the service.

    **Errors**: `RolloutFailure` of stage ``agent``: no connection, an error status or a redirect, an answer that is no
    Responses object (terminal) or too large, a passed bound.
    """

    settings_type = RemoteAgentSettings

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._service: ServerClient | None = None

    @functools.cached_property
    def _places(self) -> trio.CapacityLimiter:
        return trio.CapacityLimiter(self.settings.concurrency)

    @contextlib.asynccontextmanager
    async def lifespan(self) -> AsyncIterator[None]:
        """The connections to the service live as long as the server."""
        bounds = TransportSettings(max_body_bytes=self.settings.max_response_bytes)
        async with open_socket_transport(bounds) as transport, super().lifespan():
            self._service = ServerClient({SERVICE: (transport, self.settings.agent_base_url.rstrip("/"))})
            yield

    async def run(self, request: RequestBody) -> Mapping[str, Any]:
        limit = self.settings.run_timeout_secs
        async with self._places:
            with trio.move_on_after(limit):
                return await super().run(request)
        raise _timed_out(f"the rollout's {limit:g} s passed (run_timeout_secs)")

    async def responses(self, request: RequestBody) -> Mapping[str, Any]:
        cookies: dict[str, str] = {}

        async def ask(items: list[Any]) -> dict[str, Any]:
            return await self._ask({**request, "input": items}, cookies)

        end = await tool_loop(
            ask,
            ToolCaller(self, request, tool_timeout_seconds=self.settings.tool_timeout_seconds),
            input_items(request.get("input")),
            server=SERVICE,
            max_steps=self.settings.max_steps,
            stages=request.stages,
        )
        return end.response()

    async def _ask(self, body: Mapping[str, Any], cookies: dict[str, str]) -> dict[str, Any]:
        limit = self.settings.remote_responses_timeout_secs
        with trio.move_on_after(limit):
            return await self._post(body, cookies)
        raise _timed_out(f"{SERVICE} did not answer within {limit:g} s (remote_responses_timeout_secs)")

    async def _post(self, body: Mapping[str, Any], cookies: dict[str, str]) -> dict[str, Any]:
        if self._service is None:
            raise RuntimeError("the server's lifespan has not started")
        try:
            response = await self._service.post(SERVICE, PATH, json=body, cookies=cookies or None)
            response.raise_for_status()
            _refuse_redirect(response)
            answer = response.json()
        except (TransportError, ResponseError) as error:
            raise failure_of(error) from None
        cookies.update(response.cookies())
        if not isinstance(answer, dict):
            raise _unfit(f"{SERVICE} answered with a {type(answer).__name__}, not a Responses object")
        if not isinstance(answer.get("output"), list):
            raise _unfit(f"{SERVICE} answered with no list of output items")
        return answer


def _refuse_redirect(response: Response) -> None:
    if response.status >= 300:
        place = response.headers.get("location")
        raise _unfit(
            f"{SERVICE} answered with status {response.status}"
            + (f", a redirect to {place[:200]}: agent_base_url must be the final address" if place else "")
        )


def _unfit(message: str) -> RolloutFailure:
    return RolloutFailure(FailureKind.AGENT_RUN_ERROR, message, stage=Stage.AGENT, terminal=True)


def _timed_out(message: str) -> RolloutFailure:
    return RolloutFailure(FailureKind.AGENT_TIMEOUT, message, stage=Stage.AGENT)
