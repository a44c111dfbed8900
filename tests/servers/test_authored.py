"""What authors write: plain or async, and whatever comes of it, one failure of one rollout."""

from __future__ import annotations

import asyncio
import enum
from fractions import Fraction
from typing import Any

import attrs
import pytest
import trio
import trio.lowlevel

from gym_trio.errors import ConfigError, FailureKind, RequestRefused, RolloutFailure
from gym_trio.servers import (
    AgentServer,
    EnvironmentServer,
    GymnasiumServer,
    ModelServer,
    RequestBody,
    ResourcesServer,
    Server,
    ToolCaller,
    tool,
    tools_of,
)
from gym_trio.servers._authored import authored
from gym_trio.servers._failures import failure_of
from gym_trio.sessions import SessionRegistry


class Plain(ResourcesServer):
    """Everything that may be plain is."""

    disposed: list[Any]

    def create_session(self) -> Any:  # type: ignore[override]
        return {"made": True}

    def seed_session(self, session: Any, row: RequestBody) -> Any:  # type: ignore[override]
        session["seed"] = row.get("n", 0)
        return {"hint": session["seed"]}

    def dispose_session(self, session: Any) -> None:  # type: ignore[override]
        self.disposed.append(session)

    async def verify(self, session: Any, request: RequestBody) -> float:
        return float(session["seed"])


@pytest.mark.parametrize("typed", [False, True])
async def test_methods_of_a_session_may_be_plain(open_servers: Any, typed: bool) -> None:
    """They are called as async ones are, and what they return counts."""
    disposed: list[Any] = []
    kind = type("Kind", (Plain,), {"disposed": disposed})
    episode = {
        "resources_session_id": "s1",
        "episode_id": {"rollout_id": "r", "attempt": 0},
        "task_id": {"taskset": "t", "task_id": "1"},
    }
    body: Any = {**episode, "task_data": {"n": 3}} if typed else {"n": 3}
    async with open_servers((kind, "env", {})) as gym:
        seeded = await gym.client.post("env", "/seed_session", json=body)
        assert seeded.json()["hint"] == 3
        judged = await gym.client.post("env", "/verify", json={"response": {}}, cookies=seeded.cookies())
        assert judged.json()["reward"] == 3.0
    assert disposed == [{"made": True, "seed": 3}]


class Steps(GymnasiumServer):
    """Plain, with a reward of another type of number."""

    def reset(self, session: Any, row: RequestBody) -> Any:  # type: ignore[override]
        return "go"

    def step(self, session: Any, response: Any, row: RequestBody) -> Any:  # type: ignore[override]
        return None, Fraction(1, 2), True, False, {}


async def test_reset_and_step_may_be_plain(open_servers: Any) -> None:
    """As above; and a reward may be whatever counts as a real number."""
    async with open_servers((Steps, "env", {})) as gym:
        begun = await gym.client.post("env", "/reset", json={})
        assert begun.json()["observation"] == "go"
        stepped = await gym.client.post("env", "/step", json={"response": {}}, cookies=begun.cookies())
        assert (stepped.json()["reward"], stepped.json()["terminated"]) == (0.5, True)


class Quits(ResourcesServer):
    """It ends the program, where it is told to."""

    async def seed_session(self, session: Any, row: RequestBody) -> None:
        if row.get("where") == "seed":
            raise SystemExit(3)

    @tool
    async def quit(self, session: Any) -> None:
        """On the loop."""
        raise SystemExit(3)

    @tool(isolated=False)
    def quit_in_a_thread(self, session: Any) -> None:
        """Beside it."""
        raise SystemExit(3)

    @tool
    async def quit_in_a_nursery(self, session: Any) -> None:
        """Within tasks of its own."""

        async def leave() -> None:
            raise SystemExit(3)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(leave)

    async def verify(self, session: Any, request: RequestBody) -> float:
        if request.get("where") == "verify":
            raise SystemExit(3)
        return 1.0


@pytest.mark.parametrize("where", ["seed", "quit", "quit_in_a_thread", "quit_in_a_nursery", "verify"])
async def test_a_system_exit_ends_one_rollout_and_not_the_server(open_servers: Any, where: str) -> None:
    """It is a failure of its stage that says what it was, and the next rollout is judged as ever."""
    async with open_servers((Quits, "env", {})) as gym:
        seeded = await gym.client.post("env", "/seed_session", json={"where": where})
        if where.startswith("quit"):
            seeded = await gym.client.post("env", f"/{where}", json={}, cookies=seeded.cookies())
        elif where == "verify":
            body = {"where": where, "response": {}}
            seeded = await gym.client.post("env", "/verify", json=body, cookies=seeded.cookies())
        assert seeded.status == 500
        failure = seeded.json()["failure"]
        assert "SystemExit" in failure["failure_reason"]
        assert failure["stage"] == {"seed": "seed", "verify": "verification"}.get(where, "agent")
        assert (await gym.client.post("env", "/verify", json={"response": {}})).json()["reward"] == 1.0


class Panic(BaseException):
    """As by what libraries in Rust raise."""


class Awaited:
    """Something to be awaited that is no coroutine."""

    def __init__(self, error: BaseException) -> None:
        self._error = error

    def __await__(self) -> Any:
        yield from trio.lowlevel.checkpoint().__await__()  # noqa: ASYNC105
        raise self._error


class Foreign:
    """Of another event loop."""

    def __await__(self) -> Any:
        yield "foreign"


ENDS = {
    "SystemExit": SystemExit(3),
    "Panic": Panic("x"),
    "CancelledError": asyncio.CancelledError(),
    "Panic, in a group": BaseExceptionGroup("g", [ValueError(), BaseExceptionGroup("h", [Panic("x"), SystemExit(3)])]),
}


def ends(request: Any, where: str, plain: bool = False) -> Any:
    """Raise what the ``request`` names, at once, or when it is awaited."""
    if request.get("where") == where:
        if request["what"] == "foreign":
            if plain:
                raise TypeError
            return Foreign()
        if plain:
            raise ENDS[request["what"]]
        return Awaited(ENDS[request["what"]])
    return None


class Ends(ResourcesServer):
    async def create_session(self) -> dict[str, Any]:
        return {}

    def seed_session(self, session: Any, row: RequestBody) -> Any:  # type: ignore[override]
        session["row"] = row
        return ends(row, "seed")

    def dispose_session(self, session: Any) -> Any:  # type: ignore[override]
        return ends(session.get("row", {}), "close")

    @tool
    async def quit(self, session: Any) -> Any:
        """On the loop."""
        return await (ends(session["row"], "quit") or trio.sleep(0))  # noqa: ASYNC105, ASYNC115

    @tool(isolated=False)
    def quit_in_a_thread(self, session: Any) -> Any:
        """Beside it."""
        return ends(session["row"], "quit_in_a_thread", plain=True)

    async def verify(self, session: Any, request: RequestBody) -> float:
        ends(request, "verify", plain=True)
        await (ends(request, "verify_awaits") or trio.sleep(0))  # noqa: ASYNC105, ASYNC115
        return 1.0


class EndsInThread(ResourcesServer):
    verify_in_process = False

    def verify(self, session: Any, request: RequestBody) -> Any:
        ends(request, "thread", plain=True)
        return ends(request, "after_thread") or 1.0


class EndingAgent(AgentServer):
    def run(self, request: RequestBody) -> Any:  # type: ignore[override]
        return ends(request, "run") or {"reward": 1.0}

    def responses(self, request: RequestBody) -> Any:  # type: ignore[override]
        return ends(request, "responses", plain=True)


class EndingModel(ModelServer):
    def responses(self, request: Any) -> Any:  # type: ignore[override]
        return ends(request, "model") or {"id": "r", "object": "response", "output": [], "model": "m"}


class EndingEpisodes(EnvironmentServer):
    def run_episode(self, episode: Any) -> Any:
        async def undo() -> None:
            raise Panic("undo")

        episode.cleanup.register("first", undo)
        episode.cleanup.register("second", undo)
        return ends(episode.form.task.task_input, "episode")


PLACES = [
    *(("env", f"/{path}", path) for path in ("quit", "quit_in_a_thread")),
    ("env", "/seed_session", "seed"),
    ("env", "/close_session", "close"),
    *(("env", "/verify", where) for where in ("verify", "verify_awaits")),
    *(("threads", "/verify", where) for where in ("thread", "after_thread")),
    ("agent", "/run", "run"),
    ("agent", "/v1/responses", "responses"),
    ("model", "/v1/responses", "model"),
    ("episodes", "/run", "episode"),
]


@pytest.mark.parametrize("serve", ["memory", "sockets"])
@pytest.mark.parametrize(("server", "path", "where"), PLACES)
@pytest.mark.parametrize("what", [*ENDS, "foreign"])
async def test_what_is_no_exception_ends_one_request_and_not_the_server(
    open_servers: Any, serve: str, server: str, path: str, where: str, what: str
) -> None:
    """Raised by a plain method, by what it returned to be awaited, in a thread; the next request is answered."""
    servers = (
        (Ends, "env", {}),
        (EndsInThread, "threads", {}),
        (EndingAgent, "agent", {}),
        (EndingModel, "model", {}),
        (EndingEpisodes, "episodes", {}),
    )
    body: Any = {"where": where, "what": what, "response": {}}
    async with open_servers(*servers, serve=serve) as gym:
        cookies = {}
        if path.startswith("/quit") or where == "close":
            cookies = (await gym.client.post("env", "/seed_session", json=body)).cookies()
        sent = {} if path.startswith("/quit") else body
        if server == "episodes":
            sent = {
                "episode_id": {"rollout_id": "r", "attempt": 0},
                "task": {"task_id": {"taskset": "t", "task_id": "1"}, "task_input": body},
            }
        answer = await gym.client.post(server, path, json=sent, cookies=cookies)
        assert answer.status == (200 if server == "episodes" else 500)
        assert ("TypeError" if what == "foreign" else what) in answer.text
        judged = await gym.client.post("env", "/verify", json={"response": {}})
        assert (judged.status, judged.json()["reward"]) == (200, 1.0)


async def test_only_exits_become_errors() -> None:
    """An interrupt, alone or in a group with others, goes on."""

    def interrupt() -> None:
        raise KeyboardInterrupt

    def both() -> None:
        raise BaseExceptionGroup("both", [SystemExit(1), KeyboardInterrupt()])

    with pytest.raises(KeyboardInterrupt):
        await authored(interrupt)
    with pytest.raises(BaseExceptionGroup):
        await authored(both)


async def test_a_seed_that_returns_no_object_is_named(open_servers: Any) -> None:
    """What it returned is in the failure."""
    kind = type("Kind", (ResourcesServer,), {"seed_session": lambda self, session, row: "hello"})
    async with open_servers((kind, "env", {})) as gym:
        failure = (await gym.client.post("env", "/seed_session", json={})).json()["failure"]
        assert "seed_session returned 'hello'" in failure["failure_reason"]
        assert failure["stage"] == "seed"


def test_an_error_from_a_nursery_is_told_as_what_it_is() -> None:
    """A group of one is that one, at any depth; of several the first is named."""
    inner = ExceptionGroup("inner", [ValueError("x")])
    failure = failure_of(ExceptionGroup("outer", [inner]))
    assert (failure.message, failure.exception_type) == ("ValueError: x", "ValueError")
    own = RolloutFailure(FailureKind.JUDGE_FAILED, "silent")
    assert failure_of(ExceptionGroup("outer", [own])) is own
    assert "; the first: ValueError: x" in failure_of(ExceptionGroup("two", [inner, KeyError("y")])).message


async def test_a_refusal_from_a_nursery_keeps_its_status(open_servers: Any) -> None:
    """As one that is raised outside of it."""

    async def verify(self: Any, session: Any, request: RequestBody) -> float:
        async def refuse() -> None:
            raise RequestRefused(422, "no answer")

        async with trio.open_nursery() as nursery:
            nursery.start_soon(refuse)
        return 1.0

    async with open_servers((type("Kind", (ResourcesServer,), {"verify": verify}), "env", {})) as gym:
        response = await gym.client.post("env", "/verify", json={"response": {}})
        assert (response.status, response.json()["detail"]) == (422, "no answer")


class Colour(enum.Enum):
    RED = "red"


@attrs.define
class State:
    count: int = 0


async def without_anything(self: Any) -> None: ...
async def without_session(self: Any, city: str) -> None: ...
async def by_name_alone(self: Any, *, session: Any) -> None: ...
async def good(self: Any, state: State, colour: Colour) -> None: ...
async def odd(self: Any, session: Any, event: trio.Event) -> None: ...
async def unreadable(self: Any, session: Any, what: Nothing) -> None: ...  # type: ignore[name-defined]  # noqa: F821


@pytest.mark.parametrize(
    ("name", "method", "says"),
    [
        ("look", without_anything, r"takes self and then the session: def without_anything\(self, session, \.\.\.\)"),
        ("look", without_session, "takes self and then the session, not city: "),
        ("look", by_name_alone, "takes self and then the session"),
        ("look", odd, "has no JSON schema"),
        ("look", unreadable, "annotations cannot be read: name 'Nothing' is not defined"),
        ("verify", good, "the server has something of that name itself"),
        ("routes", good, "the server has something of that name itself"),
        ("aggregate_metrics", good, "the server has something of that name itself"),
        ("step", good, "the server has something of that name itself"),
    ],
)
def test_a_method_that_cannot_be_a_tool_is_named(name: str, method: Any, says: str) -> None:
    """When the class is first used: its arguments would be taken for the session, or it for a part of the server."""
    kind = type("Kind", (ResourcesServer,), {name: tool(method)})
    with pytest.raises(ConfigError, match=rf"Kind\.{name}: .*{says}"):
        tools_of(kind)
    assert set(tools_of(type("Fine", (ResourcesServer,), {"look": tool(good)}))) == {"look"}


class QuittingAgent(AgentServer):
    """An agent that ends the program, where it is told to."""

    async def run(self, request: RequestBody) -> Any:
        if request.get("where") == "run":
            raise SystemExit(3)
        if request.get("where") == "nursery":
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self.leave)
        return {"reward": 1.0}

    async def leave(self) -> None:
        raise SystemExit(3)

    def open_session(self, seed: Any) -> Any:  # type: ignore[override]
        if seed.agent_session_id == "bad":
            raise SystemExit(3)
        return {"id": seed.agent_session_id}


async def test_an_agents_exit_is_one_failure_too(open_servers: Any) -> None:
    """Of a rollout, or of the opening of a session, which may be plain; the others go on."""
    seed = {"episode_id": {"rollout_id": "r", "attempt": 0}, "task_id": {"taskset": "t", "task_id": "1"}}
    async with open_servers((QuittingAgent, "agent", {})) as gym:
        ended = await gym.client.post("agent", "/run", json={"where": "run"})
        assert (ended.status, ended.json()["failure"]["failure_reason"]) == (500, "RuntimeError: SystemExit: 3")
        ended = await gym.client.post("agent", "/run", json={"where": "nursery"})
        assert (ended.status, "SystemExit, in a group" in ended.json()["failure"]["failure_reason"]) == (500, True)
        assert (await gym.client.post("agent", "/run", json={})).json() == {"reward": 1.0}
        opened = await gym.client.post("agent", "/v1/agent_sessions", json={**seed, "agent_session_id": "bad"})
        assert (opened.status, "SystemExit" in opened.text) == (500, True)
        opened = await gym.client.post("agent", "/v1/agent_sessions", json={**seed, "agent_session_id": "good"})
        assert opened.json()["agent_session_id"] == "good"


class PlainModel(ModelServer):
    """A model whose method is no coroutine."""

    def responses(self, request: Any) -> Any:  # type: ignore[override]
        part = {"type": "output_text", "text": "from a def", "annotations": []}
        said = {"type": "message", "id": "m", "role": "assistant", "status": "completed", "content": [part]}
        return {"id": "r", "object": "response", "status": "completed", "model": "m", "output": [said]}


@pytest.mark.parametrize("path", ["/v1/responses", "/v1/chat/completions", "/v1/messages"])
@pytest.mark.parametrize("stream", [False, True])
async def test_a_models_method_may_be_plain(open_servers: Any, path: str, stream: bool) -> None:
    """In each of the forms."""
    body = {"input": "x", "messages": [{"role": "user", "content": "x"}], "stream": stream}
    async with open_servers((PlainModel, "model", {})) as gym:
        answer = await gym.client.post("model", path, json=body)
        assert (answer.status, "from a def" in answer.text) == (200, True)


class PlainRun(AgentServer):
    """An agent that decides by itself, at once."""

    def run(self, request: Any) -> Any:  # type: ignore[override]
        return {**request, "response": {"output": []}, "reward": 0.5}


class PlainLoop(AgentServer):
    """An agent that calls nobody."""

    def responses(self, request: Any) -> Any:  # type: ignore[override]
        return {"output": [], "asked": request["input"]}


async def test_an_agents_methods_may_be_plain(open_servers: Any) -> None:
    """As those of an environment; with a rollout's id and without, in a rollout and as a call of its own."""
    loop = {"resources_server": {"type": "resources_servers", "name": "env"}}
    environment = type("Environment", (Plain,), {"disposed": []})
    servers = (PlainRun, "runs", {}), (PlainLoop, "loops", loop), (environment, "env", {})
    async with open_servers(*servers) as gym:
        for named in ({}, {"_ng_rollout_id": "7-0"}):
            ended = await gym.client.post("runs", "/run", json={"n": 1, **named})
            assert (ended.status, ended.json()["reward"]) == (200, 0.5)
        answer = await gym.client.post("loops", "/v1/responses", json={"input": "x"})
        assert (answer.status, answer.json()["asked"]) == (200, "x")
        ended = await gym.client.post("loops", "/run", json={"n": 2, "responses_create_params": {"input": "y"}})
        assert (ended.json()["reward"], ended.json()["response"]["asked"]) == (2.0, "y")


class QuittingModel(ModelServer):
    """A model that ends the program."""

    async def responses(self, request: Any) -> Any:
        raise SystemExit(3)


@pytest.mark.parametrize("path", ["/v1/responses", "/v1/chat/completions", "/v1/messages"])
@pytest.mark.parametrize("stream", [False, True])
async def test_a_models_exit_is_one_failed_call(open_servers: Any, path: str, stream: bool) -> None:
    """In each of the forms; the server goes on."""
    async with open_servers((QuittingModel, "model", {})) as gym:
        for _ in range(2):
            body = {"input": "x", "messages": [{"role": "user", "content": "x"}], "max_tokens": 1, "stream": stream}
            answer = await gym.client.post("model", path, json=body)
            assert (answer.status, "SystemExit: 3" in answer.json()["failure"]["failure_reason"]) == (500, True)


class Narrowed(Server):
    """Says more of its sessions than the server it is made from."""

    @property
    def sessions(self) -> SessionRegistry[str]:
        return super().sessions


async def test_the_sessions_of_a_server_may_be_a_property_of_its_own() -> None:
    """Refused before the startup as in any server; the registry is the lifespan's, and the next one's after it."""
    server = Narrowed()
    with pytest.raises(RequestRefused):
        _ = server.sessions
    async with server.lifespan():
        first = server.sessions
        assert first.name == "Narrowed"
    assert server.sessions is first
    async with server.lifespan():
        assert server.sessions is not first


@pytest.mark.parametrize("seconds", [None, 5.0])
async def test_a_tool_that_fails_before_it_can_be_waited_for_is_on_record(seconds: float | None) -> None:
    """As any other that fails."""

    def refuse(arguments: Any) -> Any:
        raise ValueError("no")

    request = RequestBody()
    caller = ToolCaller(AgentServer(), request, tool_timeout_seconds=seconds, others={"refuse": refuse})
    with pytest.raises(ValueError, match="no"):
        await caller.call({"name": "refuse", "arguments": "{}", "call_id": "c"})
    (record,) = request.stages.tool_calls
    assert (record["call_id"], record["status"]) == ("c", "failed")
