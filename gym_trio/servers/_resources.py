"""`ResourcesServer`: an environment: tools that share a session's state, and the verifier that rewards a rollout."""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from .. import errors
from ..errors import FailureKind, RequestRefused, RolloutFailure, Stage
from ._aggregate import aggregate_of
from ._body import RequestBody
from ._resource_sessions import ResourceSessions
from ._server import Server
from ._tools import Tool, tools_of

if TYPE_CHECKING:
    from starlette.routing import BaseRoute

__all__ = ["ResourcesServer", "Session"]


class Session:
    """The default state of a session: an object on which an environment sets what it wants to keep."""

    def __repr__(self) -> str:
        return f"Session({', '.join(f'{key}={value!r}' for key, value in vars(self).items())})"


class ResourcesServer(Server):
    """An environment.

    Write tools as methods marked with `tool`, prepare a session in `seed_session`, and return the reward from `verify`.
    Every session has its own ``session`` object, made by `create_session` (an instance of ``session_type``), handed to
    each tool call of that session and disposed of, once, by `dispose_session` whatever happens to the rollout.

    **Cancellation**: a client that leaves cancels the handler it waits for; its session stays until it is closed or
    its time to live has passed.

    **Errors**: what a tool or `verify` raises fails that rollout with kind and stage, and no other.
    """

    server_type = "resources_servers"
    session_type: ClassVar[type] = Session
    # Stateless: the reward can be computed again from a row and a response alone (``eval reverify``).
    reverify_mode: ClassVar[str] = "stateless"
    description: ClassVar[str] = ""
    domain: ClassVar[str] = "other"
    default_agent: ClassVar[str] = "simple_agent"

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.tools: Mapping[str, Tool] = tools_of(type(self))
        self.resource_sessions = ResourceSessions(self)

    @classmethod
    def rows(cls, config: Mapping[str, Any]) -> Iterable[dict[str, Any]]:
        """The task rows that come with the environment, for a block with the keys ``config``."""
        return ()

    @classmethod
    def row_problems(cls, row: Mapping[str, Any]) -> Iterable[str]:
        """What of ``row`` does not fit this environment, each as ``field: what is wrong``. Default: nothing."""
        return ()

    async def create_session(self) -> Any:
        """The state of a new session; a fresh ``session_type()``."""
        return self.session_type()

    async def dispose_session(self, session: Any) -> None:
        """Release what the session holds. Default: its ``aclose`` or ``close``, where it has one."""
        close = _own_close(session)
        if close is not None:
            pending = close()
            if inspect.isawaitable(pending):
                await pending

    def holds_resources(self, session: Any) -> bool:
        """Is there anything for `dispose_session` to do?"""
        return type(self).dispose_session is not ResourcesServer.dispose_session or _own_close(session) is not None

    async def seed_session(self, session: Any, row: RequestBody) -> Mapping[str, Any] | None:
        """Prepare ``session`` for ``row``; what is returned is added to the seed's answer. Default: nothing."""
        return None

    async def verify(self, session: Any, request: RequestBody) -> float | Mapping[str, Any]:
        """The reward of a finished rollout; ``request`` is the row with ``response``.

        Return a finite number; or named rewards (``{"format": 0.5, "answer": 1.0}``: their sum is the reward, and they
        become ``reward_components``); or a mapping with ``reward`` and whatever else the result's row should carry.
        """
        raise NotImplementedError(f"{type(self).__name__} does not define verify")

    def routes(self) -> list[BaseRoute]:
        return [
            self.route("POST", "/seed_session", self._seed, stage=Stage.SEED),
            self.route("POST", "/verify", self._verify, stage=Stage.VERIFICATION, kind=FailureKind.VERIFIER_ERROR),
            self.route("POST", "/close_session", self.resource_sessions.close, stage=Stage.CLEANUP),
            self.route("GET", "/reverify_mode", self._reverify_mode),
            self.route("POST", "/aggregate_metrics", functools.partial(aggregate_of, self)),
            *super().routes(),
            *self.resource_sessions.routes(),
            self.route("POST", "/{tool_name}", self._call_tool),
        ]

    async def _seed(self, request: RequestBody) -> Mapping[str, Any]:
        answer = await self.resource_sessions.seed(request)
        if self.tools:
            return {"resources_tools": [tool.definition for tool in self.tools.values()], **answer}
        return answer

    async def _call_tool(self, request: RequestBody) -> Any:
        name = request.path_params["tool_name"]
        tool = self.tools.get(name)
        if tool is None:
            known = ", ".join(self.tools) or "none"
            raise RequestRefused(404, f"there is no tool {name!r}; the tools are: {known}")
        arguments = tool.check(request)
        with self.resource_sessions.using(request) as session:
            return await tool.method(self, session, **arguments)

    async def _verify(self, request: RequestBody) -> Mapping[str, Any]:
        if not isinstance(request.get("response"), Mapping):
            raise RequestRefused(422, "verify needs the row's response, an object")
        async with self.resource_sessions.using_or_new(request) as session:
            answer = await self.verify(session, request)
        return {**request, **verify_response(answer)}

    async def _reverify_mode(self, request: RequestBody) -> dict[str, str]:
        return {"reverify_mode": self.reverify_mode}


def _own_close(session: Any) -> Any:
    return getattr(session, "aclose", None) or getattr(session, "close", None)


def verify_response(answer: Any) -> dict[str, Any]:
    """What a verifier returned, as the keys of a verify response.

    **Errors**: `RolloutFailure` (``verifier_error``) when it is not a finite number, named rewards, or a mapping with
    a finite ``reward``.
    """
    if isinstance(answer, Mapping):
        if "reward" in answer:
            return {**answer, "reward": _finite(answer["reward"])}
        components = {name: _finite(value) for name, value in answer.items()}
        if components:
            return {"reward": sum(components.values()), "reward_components": components}
    return {"reward": _finite(answer)}


def _finite(value: Any) -> float:
    if isinstance(value, bool | int | float) and math.isfinite(value):
        return float(value)
    raise RolloutFailure(
        errors.FailureKind.VERIFIER_ERROR,
        f"the verifier returned {value!r}, which is not a finite number",
        stage=Stage.VERIFICATION,
        terminal=True,
    )
