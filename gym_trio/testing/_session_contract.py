"""`check_session_contract`: does an author's own server keep every promise about sessions?"""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import attrs
import trio

from ..errors import UsageError
from ..http import MemoryTransport, Response, ServerClient, open_lifespan
from ..servers import AgentServer, ResourcesServer, Server

__all__ = ["check_session_contract"]

EPISODE = {"rollout_id": "contract-0", "attempt": 0}
OTHER_EPISODE = {"rollout_id": "contract-1", "attempt": 0}
TASK = {"taskset": "contract", "task_id": "1"}

# A client leaves after so many steps of the scheduler: before, during and after whatever the server awaits.
LEAVE_AFTER_STEPS = (0, 1, 2, 3, 5, 8, 13, 21)

ServerFactory = Callable[[], "Server | Awaitable[Server]"]


@attrs.frozen
class Form:
    """How the two kinds of servers name the same things."""

    id_key: str
    cookie: str
    seed_path: str
    close_path: str
    seed_defaults: Mapping[str, Any]


AGENT = Form("agent_session_id", "agent_session_id", "/v1/agent_sessions", "/v1/agent_sessions/close", {})
RESOURCES = Form("resources_session_id", "session_id", "/seed_session", "/close_session", {"task_data": {}})


@attrs.define
class Client:
    """One client of the server under check, with cookies of its own."""

    form: Form
    seed_more: Mapping[str, Any]
    http: ServerClient
    server: Server
    jar: dict[str, str] = attrs.field(factory=dict)

    def another(self) -> Client:
        return Client(self.form, self.seed_more, self.http, self.server)

    async def post(self, path: str, body: Mapping[str, Any]) -> Response:
        response = await self.http.post("server", path, json=body, cookies=self.jar or None)
        self.jar.update(response.cookies())
        return response

    async def seed(self, session_id: str, episode: Any = EPISODE, **change: Any) -> Response:
        body = {self.form.id_key: session_id, "episode_id": episode, "task_id": TASK}
        return await self.post(self.form.seed_path, {**body, **self.form.seed_defaults, **self.seed_more, **change})

    async def close(self, session_id: str, episode: Any = EPISODE, **change: Any) -> Response:
        return await self.post(self.form.close_path, {self.form.id_key: session_id, "episode_id": episode, **change})

    async def leave(self, call: Callable[..., Awaitable[Response]], session_id: str, steps: int) -> None:
        """Send a request and go away after so many steps of the scheduler."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(call, session_id)
            for _ in range(steps):
                await trio.lowlevel.checkpoint()
            nursery.cancel_scope.cancel()


def expect(response: Response, status: int, what: str) -> Any:
    if response.status != status:
        raise AssertionError(f"{what} must answer {status}, not {response.status}: {response.text[:500]}")
    return response.json()


def same(first: Any, second: Any, what: str) -> None:
    if first != second:
        raise AssertionError(f"{what}: {first!r} is not {second!r}")


async def a_repeated_seed_answers_as_the_first(client: Client) -> None:
    first = expect(await client.seed("a"), 200, "a seed")
    same(first[client.form.id_key], "a", "a seed must answer with its id")
    same(first, expect(await client.seed("a"), 200, "a repeated seed"), "a repeated seed must answer as the first")
    other = client.another()
    same(first, expect(await other.seed("a"), 200, "another client's equal seed"), "another client's equal seed")
    same(client.server.sessions.statistics().ready, 1, "equal seeds must open one session")


async def another_body_is_a_conflict(client: Client) -> None:
    expect(await client.seed("a"), 200, "a seed")
    for what, answer in (
        ("episode", await client.seed("a", OTHER_EPISODE)),
        ("task", await client.seed("a", task_id={**TASK, "task_id": "2"})),
    ):
        expect(answer, 409, f"a seed of the same id with another {what}")


async def a_repeated_close_answers_as_the_first(client: Client) -> None:
    expect(await client.seed("a"), 200, "a seed")
    first = expect(await client.close("a"), 200, "a close")
    same(first, expect(await client.close("a"), 200, "a repeated close"), "a repeated close must answer as the first")
    same(first, expect(await client.another().close("a"), 200, "another client's close"), "another client's close")


async def a_closed_id_is_spent(client: Client) -> None:
    expect(await client.seed("a"), 200, "a seed")
    expect(await client.close("a"), 200, "a close")
    expect(await client.seed("a"), 409, "a seed after the close")
    expect(await client.another().seed("a"), 409, "another client's seed after the close")


async def closing_an_unknown_id_spends_it(client: Client) -> None:
    first = expect(await client.close("a"), 200, "a close of an unknown id")
    same(first, expect(await client.close("a"), 200, "its repetition"), "a repeated close of an unknown id")
    expect(await client.another().seed("a"), 409, "a seed that comes after its close")


async def another_episode_cannot_close(client: Client) -> None:
    expect(await client.seed("a"), 200, "a seed")
    expect(await client.close("a", OTHER_EPISODE), 409, "another episode's close")
    expect(await client.close("a"), 200, "the close")
    expect(await client.close("a", OTHER_EPISODE), 409, "another episode's close after the close")


async def what_does_not_validate_is_refused(client: Client) -> None:
    for what, answer in (
        ("a seed with an unknown field", await client.seed("a", unknown=1)),
        ("a seed with an empty id", await client.seed("")),
        ("a seed without an episode", await client.seed("a", None)),
        ("a seed with a negative attempt", await client.seed("a", {**EPISODE, "attempt": -1})),
        ("a close with an unknown field", await client.close("a", unknown=1)),
    ):
        expect(answer, 422, what)
    same(client.server.sessions.statistics().live, 0, "a refused request must open nothing")


async def a_cookie_belongs_to_its_session(client: Client) -> None:
    expect(await client.seed("a"), 200, "a seed")
    if client.form.cookie not in client.jar:
        raise AssertionError(f"a seed must set the cookie {client.form.cookie}")
    expect(await client.seed("b"), 409, "a seed of another id with a session's cookie")
    expect(await client.close("b"), 409, "a close of another id with a session's cookie")
    expect(await client.close("a"), 200, "the close")
    if client.form.cookie not in client.jar:
        raise AssertionError("the cookie must stay set after the close")


async def a_stale_request_is_refused(client: Client) -> None:
    expect(await client.seed("a"), 200, "a seed")
    expect(await client.close("a"), 200, "a close")
    if isinstance(client.server, AgentServer):
        answer = await client.post("/v1/responses", {"input": "after the close"})
    else:
        answer = await client.post("/verify", {"responses_create_params": {}, "response": {"output": []}})
    expect(answer, 409, "a request with the cookie of a closed session")


async def a_close_goes_on_when_its_client_leaves(client: Client) -> None:
    for steps in LEAVE_AFTER_STEPS:
        session_id = f"left-{steps}"
        expect(await client.another().seed(session_id), 200, "a seed")
        await client.another().leave(client.another().close, session_id, steps)
        first = expect(await client.another().close(session_id), 200, "the next client's close")
        same(first, expect(await client.another().close(session_id), 200, "a third close"), "the receipt")


async def a_seed_whose_client_leaves_is_not_lost(client: Client) -> None:
    for steps in LEAVE_AFTER_STEPS:
        session_id = f"left-{steps}"
        await client.another().leave(client.another().seed, session_id, steps)
        expect(await client.another().close(session_id), 200, f"a close after a client left its seed ({steps} steps)")
    same(client.server.sessions.statistics().live, 0, "sessions left open by clients that left")


async def sessions_side_by_side_do_not_touch_each_other(client: Client) -> None:
    async def one(number: int) -> None:
        mine, episode = client.another(), {"rollout_id": f"side-{number}", "attempt": 0}
        expect(await mine.seed(f"s{number}", episode), 200, "a seed")
        answer = expect(await mine.close(f"s{number}", episode), 200, "a close")
        same(answer[client.form.id_key], f"s{number}", "a close must answer with its id")

    async with trio.open_nursery() as nursery:
        for number in range(20):
            nursery.start_soon(one, number)


async def shutdown_closes_what_is_open(client: Client) -> None:
    for number in range(5):
        expect(await client.another().seed(f"s{number}"), 200, "a seed")
    if isinstance(client.server, ResourcesServer):
        expect(
            await client.another().post("/seed_session", client.seed_more.get("task_data") or {}), 200, "a row's seed"
        )


RULES: tuple[Callable[[Client], Awaitable[None]], ...] = (
    a_repeated_seed_answers_as_the_first,
    another_body_is_a_conflict,
    a_repeated_close_answers_as_the_first,
    a_closed_id_is_spent,
    closing_an_unknown_id_spends_it,
    another_episode_cannot_close,
    what_does_not_validate_is_refused,
    a_cookie_belongs_to_its_session,
    a_stale_request_is_refused,
    a_close_goes_on_when_its_client_leaves,
    a_seed_whose_client_leaves_is_not_lost,
    sessions_side_by_side_do_not_touch_each_other,
    shutdown_closes_what_is_open,
)


async def check_session_contract(
    server_factory: ServerFactory, *, seed: Mapping[str, Any] | None = None, rule_bound_seconds: float = 60
) -> None:
    """Run every rule of the session contract against servers that ``server_factory`` makes, one for each rule.

    The server is an `AgentServer` or a `ResourcesServer`, with whatever client it needs to open a session; it is run
    in memory, its lifespan included. ``seed`` has fields that a seed must have for this server: ``tool_accesses`` of
    an agent, ``task_data`` of an environment.

    **Errors**: `AssertionError` that begins with the name of the rule that is broken; `UsageError` for a server that
    keeps no sessions.
    """
    for rule in RULES:
        name = rule.__name__.replace("_", " ")
        server = server_factory()
        if inspect.isawaitable(server):
            server = await server
        try:
            await _check(rule, server, seed or {}, rule_bound_seconds)
        except AssertionError as error:
            raise AssertionError(f"{name}: {error}") from None


async def _check(
    rule: Callable[[Client], Awaitable[None]], server: Server, seed: Mapping[str, Any], bound_seconds: float
) -> None:
    with trio.move_on_after(bound_seconds) as scope:
        async with _running(server) as client:
            await rule(Client(_form_of(server), seed, client, server))
    if scope.cancelled_caught:
        raise AssertionError(f"it took over {bound_seconds:g} s")
    report = server.sessions.statistics().last_drain
    if report is None or report.unconfirmed:
        why = "there was no drain" if report is None else "; ".join(f"{one}: {why}" for one, why in report.unconfirmed)
        raise AssertionError(f"shutdown left sessions that are not confirmed closed: {why}")


def _form_of(server: Server) -> Form:
    if isinstance(server, AgentServer):
        return AGENT
    if isinstance(server, ResourcesServer):
        return RESOURCES
    raise UsageError(f"{server!r} keeps no sessions; the contract is for AgentServer and ResourcesServer")


@asynccontextmanager
async def _running(server: Server) -> AsyncIterator[ServerClient]:
    async with open_lifespan(server.app, server=server.name) as state:
        yield ServerClient({"server": (MemoryTransport(server.app, state=state), "http://server")})
