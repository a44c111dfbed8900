"""`Gym`: rollouts over a set of servers."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING, Any

from .. import telemetry
from ..config import GymConfig, route_problem, suggestion
from ..errors import Delivery, FailureKind, RolloutFailure, RowError, Stage
from ..http import Response, ServerClient, begin_work
from ..rollouts import RolloutAttempt, RolloutStream, open_rollout_stream
from ..servers import failure_from_wire
from ._episodes import ENVIRONMENT_SERVER, LEGACY_AGENT, episode_of, result_of_episode

if TYPE_CHECKING:
    from ..processes import Supervisor
    from ._evidence import Evidence

__all__ = ["Gym"]

Rows = Iterable[Mapping[str, Any]] | AsyncIterator[Mapping[str, Any]]


class Gym:
    """A set of running servers, found by name.

    ``agents`` are the names that rows can be sent to; those of a head server are known once it has been asked.
    ``config`` is the configuration the servers were made from, where there is one; ``supervisor`` owns the processes,
    where the servers are processes, and ``addresses`` are their URLs. ``in_memory``: rollouts are requests in memory.
    Get it from `open_gym` or `connect_gym`.

    **Ownership**: the block that gave it owns the servers and connections; after the block it answers nothing.
    """

    def __init__(
        self,
        client: ServerClient,
        *,
        agents: Iterable[str] = (),
        config: GymConfig | None = None,
        supervisor: Supervisor | None = None,
        addresses: Mapping[str, str] | None = None,
        evidence: Evidence | None = None,
        find_routes: Callable[[], Awaitable[tuple[str, ...]]] | None = None,
        in_memory: bool = False,
    ) -> None:
        self.client = client
        self._in_memory = in_memory
        self.config = config
        self.supervisor = supervisor
        self.addresses: Mapping[str, str] = dict(addresses or {})
        self._evidence = evidence
        self._streams = 0  # opened so far: rows without ids of their own are told apart by it
        self._in_flight: set[str] = set()
        self._agents: tuple[str, ...] = tuple(agents)
        self._find_routes = find_routes

    @property
    def agents(self) -> tuple[str, ...]:
        return self._agents

    def __repr__(self) -> str:
        return f"<Gym of {', '.join(self.client.server_names) or 'no servers'}>"

    async def post(self, server_name: str, path: str, *, json: Any = None) -> Response:
        """``POST path`` with a JSON body on the server of that name, and the whole response, whatever its status.

        **Cancellation**: the request is withdrawn: its connection is closed, or its handler cancelled, at once.

        **Errors**: `UsageError` for a name that is not known; `TransportError` when no complete response came back.
        """
        await self._know_routes()
        return await self.client.post(server_name, path, json=json)

    def run_examples(
        self,
        rows: Rows,
        *,
        agent: str | None = None,
        max_concurrent: int | None = None,
        max_resident_tasks: int | None = None,
        rollout_timeout_seconds: float | None = None,
        dispatch_budget_seconds: float | None = None,
        drain_margin_seconds: float | None = None,
    ) -> AbstractAsyncContextManager[RolloutStream]:
        """Run ``rows`` (an iterable or async iterable of dicts, finite or not) as rollouts; a stream of outcomes.

        A row goes to the environment server that its ``_ng_environment_server`` names, as an episode; where there is
        none, to the agent that its ``agent_ref.name`` names, else to ``agent``, else to the only agent there is.
        ``max_concurrent`` bounds the rollouts in flight, ``max_resident_tasks`` those in flight and those finished but
        not received. No rollout starts that could not end within ``dispatch_budget_seconds`` from now less
        ``drain_margin_seconds``; see `RolloutStream` for stopping and accounting.

        **Cancellation**: leaving the block cancels what is in flight and waits for the local tasks; a remote server is
        told by its closed connection, and is not waited for.

        **Errors**: `RowError` from the iteration, after everything that was started, for a row that no agent takes.
        A rollout that fails is an outcome, never an exception here. A row with the rollout id of one that is in flight
        in this gym is such a failure, of stage ``admission``: what is kept by id, captures and claims, would be mixed.
        """
        return self._run_examples(
            rows,
            agent=agent,
            max_concurrent=max_concurrent,
            max_resident_tasks=max_resident_tasks,
            rollout_timeout_seconds=rollout_timeout_seconds,
            dispatch_budget_seconds=dispatch_budget_seconds,
            drain_margin_seconds=drain_margin_seconds,
        )

    @asynccontextmanager
    async def _run_examples(self, rows: Rows, *, agent: str | None, **bounds: Any) -> AsyncIterator[RolloutStream]:
        await self._know_routes()
        if agent is not None:
            self._check_agent(agent, "run_examples(agent=...)")

        def run(attempt: RolloutAttempt) -> Awaitable[dict[str, Any]]:
            return self._run(attempt, attempt.checked)

        def check_row(row: Mapping[str, Any]) -> str:
            return self._target_of(row, agent)

        self._streams += 1
        prefix = f"s{self._streams}." if self._streams > 1 else ""
        opened = open_rollout_stream(rows, run, check_row=check_row, id_prefix=prefix, **bounds)
        del rows  # the stream lets go of them when they are used up
        async with opened as stream:
            yield stream

    async def _run(self, attempt: RolloutAttempt, agent: str) -> dict[str, Any]:
        rollout_id = attempt.rollout_id
        if rollout_id in self._in_flight:
            raise _is_in_flight(rollout_id)
        self._in_flight.add(rollout_id)
        if self._in_memory:
            begin_work()
        since = time.time()
        evidence = self._evidence
        try:
            with telemetry.span("rollout", rollout_id=rollout_id, agent=agent):
                result = await self._post_run(attempt, agent)
                if evidence is not None:
                    result, evidence = await evidence.attach(rollout_id, result, since), None
        finally:
            self._in_flight.discard(rollout_id)
            if evidence is not None:
                evidence.calls.forget(rollout_id)
        if telemetry.is_used():
            telemetry.count("rollouts.completed", agent=agent)
            reward = result.get("reward")
            if isinstance(reward, int | float):
                telemetry.record("reward", reward, agent=agent)
        return result

    async def _post_run(self, attempt: RolloutAttempt, agent: str) -> dict[str, Any]:
        as_episode = attempt.row.get(ENVIRONMENT_SERVER) == agent and self._takes_episodes(agent, attempt.row)
        body = episode_of(attempt.row, attempt.rollout_id, agent) if as_episode else attempt.row
        response = await self.client.post(agent, "/run", json=body, on_sent=attempt.mark_sent)
        if response.status >= 400:
            failure = failure_from_wire(agent, response.status, response.body)
            telemetry.count("rollouts.failed", agent=agent, kind=str(failure.kind) if failure else "status")
            if failure is not None:
                raise failure
            response.raise_for_status()
        result = response.json()
        if not isinstance(result, dict):
            message = f"{agent} answered /run with a {type(result).__name__}, not an object"
            raise RolloutFailure(FailureKind.AGENT_RUN_ERROR, message, response.status, Stage.AGENT)
        return result_of_episode(agent, result, response.status) if as_episode else result

    def _takes_episodes(self, server: str, row: Mapping[str, Any]) -> bool:
        """Whether an environment server runs episodes, or hands rows on to an agent as they are."""
        block = self.config.find(server) if self.config is not None else None
        if block is not None:
            return block.implementation != LEGACY_AGENT
        return "_ng_task_id" in row  # someone else's server: a row of a taskset is an episode's

    def _target_of(self, row: Mapping[str, Any], agent: str | None) -> str:
        """The server that ``row`` is posted to: the environment server that it names, else its agent."""
        server = row.get(ENVIRONMENT_SERVER)
        if server is not None and server in self.client.server_names:
            block = self.config.find(server) if self.config is not None else None
            if self.config is not None and block is not None and block.server_type != "environment_servers":
                raise RowError(f"{ENVIRONMENT_SERVER}: {route_problem(block, self.config.servers)}")
            return str(server)
        # A row that was recorded elsewhere names the environment server of that place; here its agent takes it.
        return self.agent_for(row, agent)

    def agent_for(self, row: Mapping[str, Any], agent: str | None = None) -> str:
        """The agent that ``row`` goes to. **Errors**: `RowError` that says what the choices are."""
        reference = row.get("agent_ref")
        if isinstance(reference, Mapping) and reference.get("name") is not None:
            return self._check_agent(str(reference["name"]), "agent_ref.name")
        if agent is not None:
            return agent
        if len(self._agents) == 1:
            return self._agents[0]
        choices = ", ".join(self._agents) or "none"
        raise RowError(f"the row has no agent_ref.name, no agent was given, and the agents are: {choices}")

    def _check_agent(self, name: str, where: str) -> str:
        if name not in self._agents:
            raise RowError(f"{where} names {name!r}, which is no agent here{suggestion(name, self._agents)}")
        return name

    async def _know_routes(self) -> None:
        if self._find_routes is not None:
            self._agents = await self._find_routes()
            self._find_routes = None


def _is_in_flight(rollout_id: str) -> RolloutFailure:
    message = (
        f"another rollout with the id {rollout_id!r} is in flight; give each row a _ng_rollout_id, or a "
        "_ng_rollout_index, of its own"
    )
    return RolloutFailure(FailureKind.AGENT_REQUEST_FAILED, message, stage=Stage.ADMISSION, delivery=Delivery.NOT_SENT)
