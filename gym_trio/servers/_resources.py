"""`ResourcesServer`: an environment: tools that share a session's state, and the verifier that rewards a rollout."""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias, TypeVar, TypeVarTuple

from ..config import structure
from ..errors import FailureKind, RequestRefused, Stage
from ..threads import Threads
from ._aggregate import aggregate_of
from ._body import RequestBody
from ._mcp import McpExposure
from ._resource_sessions import ResourceSessions
from ._server import LIMIT_KEYS, Server
from ._tool_calls import ToolCalls
from ._tools import Tool, tools_of
from ._verdict import VERDICT_HEADER, VERDICT_KEY
from ._verifying import Verifying
from ._worker_home import WorkerHome, open_worker_home
from ._worker_pool import EnvironmentLimits

if TYPE_CHECKING:
    from starlette.routing import BaseRoute

__all__ = ["ResourcesServer", "Session"]

T = TypeVar("T")
Ts = TypeVarTuple("Ts")
Verdict: TypeAlias = "float | Mapping[str, Any]"


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
    # Serve the tools at ``/mcp`` too; the block's key of the same name comes before it.
    expose_tools_over_mcp: ClassVar[bool] = False
    # Where `verify` runs. None: in a process of its own when it is a plain function, on the loop when it is async.
    # True: in a process, also an async one. False: a plain one in a thread.
    verify_in_process: ClassVar[bool | None] = None

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        bounds = {key: self.config[key] for key in LIMIT_KEYS if self.config.get(key) is not None}
        self.limits = structure(EnvironmentLimits, bounds, key=self.name)
        self._own_threads = Threads()
        self.verifying = Verifying(self)
        self.tools: Mapping[str, Tool] = tools_of(type(self))
        self.tool_calls = ToolCalls(self)
        exposed = self.config.get("expose_tools_over_mcp", self.expose_tools_over_mcp)
        self.mcp: McpExposure | None = McpExposure(self) if exposed is True else None
        self.resource_sessions = ResourceSessions(self)
        self._worker_home: WorkerHome | None = None

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
        """Prepare ``session`` for ``row``; what is returned is added to the seed's answer. Default: nothing.

        A plain ``def`` does as well, here and in the other methods of a session; either must not block.
        """
        return None

    def verify(self, session: Any, request: RequestBody) -> Verdict | Awaitable[Verdict]:
        """The reward of a finished rollout; ``request`` is the row with ``response``.

        Return a finite number; or named rewards (``{"format": 0.5, "answer": 1.0}``: their sum is the reward, and they
        become ``reward_components``; ``mask_sample`` beside them is none of them); or a mapping with ``reward`` and
        whatever else the result's row should carry.

        ``async def`` runs on the server's loop and must not block. A plain ``def`` may: it runs in a process from a
        small pool, with a copy of ``session`` (what it changes there is lost) on an instance of its own of the class,
        made from ``name`` and ``config``. Whatever it does there, hang, crash, take memory, fails its rollout alone.
        A class made inside a function is forked for each verification instead; what that leaves running ends with it.
        See `EnvironmentLimits` for the bounds, and `in_thread` for what blocks in an ``async def``.

        The result's row is ``request`` as it came, and what is returned. What is changed in ``request`` here, also
        within a value of it, does not show there, wherever this runs.
        """
        raise NotImplementedError(f"{type(self).__name__} does not define verify")

    async def in_thread(self, call: Callable[[*Ts], T], *arguments: *Ts) -> T:
        """What ``call`` returns: for what takes long, or blocks, in a method that is async.

        **Cancellation**: leaves the call to itself. It keeps a thread of this server's, of which there are a hundred.

        **Errors**: what it raises.
        """
        return await self._own_threads.run(call, *arguments)

    @contextlib.asynccontextmanager
    async def lifespan(self) -> AsyncIterator[None]:
        mcp = self.mcp.running() if self.mcp else contextlib.nullcontext()
        async with super().lifespan(), mcp, open_worker_home(self.name) as home:
            self._worker_home = home
            try:
                yield
            finally:
                await self.verifying.aclose()
                await self.tool_calls.aclose()

    @property
    def worker_home(self) -> WorkerHome:
        """Where the processes of verifiers and tools belong to.

        **Errors**: `RequestRefused` (503) before the lifespan's startup.
        """
        if self._worker_home is None:
            raise RequestRefused(503, f"{self.name} is not running: its lifespan has not started")
        return self._worker_home

    def routes(self) -> list[BaseRoute]:
        return [
            self.route("POST", "/seed_session", self._seed, stage=Stage.SEED),
            self.route("POST", "/verify", self._verify, stage=Stage.VERIFICATION, kind=FailureKind.VERIFIER_ERROR),
            self.route("POST", "/close_session", self.resource_sessions.close, stage=Stage.CLEANUP),
            self.route("GET", "/reverify_mode", self._reverify_mode),
            self.route("POST", "/aggregate_metrics", functools.partial(aggregate_of, self)),
            *super().routes(),
            *([self.mcp.route()] if self.mcp else []),
            self.route("POST", "/{tool_name}", self._call_tool),
        ]

    async def _seed(self, request: RequestBody) -> Mapping[str, Any]:
        answer = await self.resource_sessions.seed(request)
        return {"resources_tools": self.definitions, **answer} if self.tools else answer

    @property
    def definitions(self) -> list[dict[str, Any]]:
        """The tools in the form of a Responses request's ``tools``."""
        return [tool.definition for tool in self.tools.values()]

    async def _call_tool(self, request: RequestBody) -> Any:
        tool = self.find_tool(request.path_params["tool_name"])
        with self.resource_sessions.using(request) as session:
            return await self.tool_calls.call(tool, session.state, request)

    def find_tool(self, name: str) -> Tool:
        """**Errors**: `RequestRefused` (404) that names the tools there are."""
        tool = self.tools.get(name)
        if tool is None:
            known = ", ".join(self.tools) or "none"
            raise RequestRefused(404, f"there is no tool {name[:100]!r}; the tools are: {known}")
        return tool

    async def _verify(self, request: RequestBody) -> Mapping[str, Any]:
        if not isinstance(request.get("response"), (dict, Mapping)):
            raise RequestRefused(422, "verify needs the row's response, an object")
        wants_verdict = request.header(VERDICT_HEADER) is not None
        # Who wants more gets the row as it came, whatever the verifier makes of it.
        row = {} if wants_verdict else self.verifying.untouched(request)
        sessions = self.resource_sessions
        session_id = sessions.id_of(request)
        if session_id is not None:
            with sessions.using_id(session_id) as session:
                verdict = await self.verifying.verdict(session.state, request)
            sessions.end_with(request, session_id)
        else:
            async with sessions.passing() as state:
                verdict = await self.verifying.verdict(state, request)
        if wants_verdict:
            verdict[VERDICT_KEY] = True  # whatever the verifier said under it: else the row would be lost
        return {**row, **verdict}

    async def _reverify_mode(self, request: RequestBody) -> dict[str, str]:
        return {"reverify_mode": self.reverify_mode}


def _own_close(session: Any) -> Any:
    return getattr(session, "aclose", None) or getattr(session, "close", None)
