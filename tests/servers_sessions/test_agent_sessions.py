"""Agent sessions over HTTP: cookies, refusals, failures, expiry, and what a session's requests see."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from gym_trio.errors import ConfigError, RequestRefused, SessionSetupError

DIRECT = {
    "kind": "direct_http",
    "name": "shop",
    "required": True,
    "base_url": "http://127.0.0.1:9101",
    "cookies": {"session_id": "x"},
}


async def test_a_sessions_requests_find_its_state(agent: Any, open_peer: Any) -> None:
    """The state that open_session returned is there, and the tools' cookies, which come back at close."""
    async with open_peer(agent) as peer:
        assert (await peer.seed(tool_accesses=[DIRECT])).status == 200
        for _ in range(2):
            answer = await peer.post("/v1/responses")
            assert answer.json()["cookies"] == {"session_id": "x"}
            assert list(answer.cookies()) == ["agent_session_id"]
        assert (await peer.post("/ng-rollout/1-0/v1/responses")).status == 200
        assert (await peer.post("/ng-rollout/1-0/training-token-capture/v1/responses")).status == 200
        closed = (await peer.close()).json()
    assert closed == {
        "agent_session_id": "a",
        "agent_observations": {"turns": 4},
        "resources_cookies": {"session_id": "x"},
    }
    assert [seen["id"] for seen in agent.sessions_seen] == ["a"] * 4


async def test_requests_without_a_cookie_have_no_session(agent: Any, open_peer: Any) -> None:
    """They set none either."""
    async with open_peer(agent) as peer:
        await peer.seed()
        answer = await peer.post("/v1/responses", fresh=True)
        assert answer.status == 200
        assert not answer.cookies()
    assert agent.sessions_seen == [None]


async def test_a_stale_cookie_never_falls_back_to_no_session(agent: Any, open_peer: Any) -> None:
    """After the close, and after the receipt has expired, the session's cookie gets 409."""
    async with open_peer(agent) as peer:
        await peer.seed()
        await peer.close()
        assert "agent_session_id" in peer.jar
        refused = await peer.post("/v1/responses")
        assert (refused.status, refused.json()) == (409, {"detail": "Unknown or closing agent_session_id"})
        assert "agent_session_id" in refused.cookies()
    assert agent.sessions_seen == []


@pytest.mark.parametrize("path", ["/v1/responses", "/v1/agent_sessions", "/v1/agent_sessions/close"])
@pytest.mark.parametrize("forged", ["YQ.AAAA", "YQ", "", "é", "...", "YQ.YQ.YQ"])
async def test_a_forged_cookie_is_refused(agent: Any, open_peer: Any, episode: Any, path: str, forged: str) -> None:
    """Only what this server has signed counts; anything else is a conflict and not "no session"."""
    body = {"agent_session_id": "a", "episode_id": episode}
    if path == "/v1/agent_sessions":
        body["task_id"] = {"taskset": "t", "task_id": "1"}
    async with open_peer(agent) as peer:
        peer.jar["agent_session_id"] = forged
        assert (await peer.post(path, body)).status == 409
    assert agent.opened == []


async def test_another_servers_cookie_is_refused(make_agent: Any, open_peer: Any) -> None:
    """The secret is random for each server."""
    async with open_peer(make_agent()) as one, open_peer(make_agent()) as two:
        await one.seed()
        two.jar.update(one.jar)
        assert (await two.seed()).status == 409


async def test_a_cookies_session_must_be_the_one_that_is_named(agent: Any, open_peer: Any) -> None:
    """Seed and close of another id with a session's cookie are conflicts."""
    async with open_peer(agent) as peer:
        await peer.seed("a")
        for answer in (await peer.seed("b"), await peer.close("b")):
            assert answer.status == 409
            assert answer.json() == {"detail": "agent_session_id does not match the session cookie"}
    assert agent.opened == agent.closed == ["a"]


async def test_a_receipt_expires_and_then_the_cookie_is_a_conflict(
    make_agent: Any, open_peer: Any, autojump_clock: Any
) -> None:
    """Within the window the close answers as before; afterwards 409 with the cookie, an unknown id without."""
    agent = make_agent(config={"session_close_retry_window_seconds": 10})
    async with open_peer(agent) as peer:
        await peer.seed()
        first = await peer.close()
        await trio.sleep(9)
        assert (await peer.close()).body == first.body
        await trio.sleep(2)
        late = await peer.close()
        assert (late.status, late.json()) == (409, {"detail": "Agent close receipt has expired"})
        seeded = await peer.seed()
        assert (seeded.status, seeded.json()) == (409, {"detail": "Agent session cookie has expired"})
        unknown = await peer.close(fresh=True)
        assert unknown.json() == {"agent_session_id": "a", "agent_observations": None, "resources_cookies": None}


async def test_a_failed_close_answers_500_and_keeps_state_and_checkpoint(agent: Any, open_peer: Any) -> None:
    """The next close tries again with the same state, and its receipt has all of it."""
    agent.fail_closes = 1
    async with open_peer(agent) as peer:
        await peer.seed()
        await peer.post("/v1/responses")
        failed = await peer.close()
        assert failed.status == 500
        assert "the sandbox is gone" in failed.json()["detail"]
        assert "agent_session_id" in failed.cookies()
        assert (await peer.post("/v1/responses")).status == 409
        assert (await peer.seed()).json() == {"detail": "Agent session is closing"}
        assert agent.sessions.claims.find("1-0").sessions == ("a",)
        assert (await peer.close()).json()["agent_observations"] == {"turns": 1}
        assert not agent.sessions.claims.find("1-0")


async def test_a_close_that_takes_too_long_answers_500(make_agent: Any, open_peer: Any, autojump_clock: Any) -> None:
    """The block's own bound applies, and the next close works."""
    agent = make_agent(config={"session_close_timeout_seconds": 3})
    agent.close_seconds = 10
    async with open_peer(agent) as peer:
        await peer.seed()
        assert (await peer.close()).status == 500
        assert trio.current_time() == pytest.approx(3)
        agent.close_seconds = 0
        assert (await peer.close()).status == 200


async def test_an_open_that_fails_answers_500_once_and_then_the_id_is_spent(agent: Any, open_peer: Any) -> None:
    """Nothing was made, so there is nothing to close."""
    agent.fail_open = OSError("no sandbox left")
    async with open_peer(agent) as peer:
        failed = await peer.seed()
        assert failed.status == 500
        assert "no sandbox left" in failed.json()["detail"]
        assert failed.json()["failure"]["stage"] == "seed"
        assert (await peer.seed()).status == 409
        assert (await peer.close()).json()["resources_cookies"] is None
    assert agent.closing == []


async def test_an_open_may_refuse_with_a_status_of_its_own(agent: Any, open_peer: Any) -> None:
    """A required tool that the agent cannot use is a 422."""
    agent.fail_open = RequestRefused(422, "this agent has no MCP")
    async with open_peer(agent) as peer:
        refused = await peer.seed()
    assert (refused.status, refused.json()) == (422, {"detail": "this agent has no MCP"})


@pytest.mark.parametrize("cause", [None, OSError("the disk is full")])
async def test_a_half_made_session_is_closed_and_its_error_told(
    agent: Any, open_peer: Any, cause: Exception | None
) -> None:
    """What SessionSetupError hands over is closed at once; the answer has its cause."""
    agent.fail_open = SessionSetupError({"id": "half", "checkpoint": 7}, "half made")
    agent.fail_open.__cause__ = cause
    async with open_peer(agent) as peer:
        failed = await peer.seed()
        assert failed.status == 500
        assert ("the disk is full" if cause else "half made") in failed.json()["detail"]
        await wait_all_tasks_blocked()
        assert agent.closed == ["half"]
        assert (await peer.close()).json()["agent_observations"] == {"turns": 7}
        assert agent.closed == ["half"]


async def test_observations_that_are_no_json_do_not_make_a_close_unanswerable(open_peer: Any, make_agent: Any) -> None:
    """The session is closed; its observations are logged as lost."""

    class Odd(make_agent):  # type: ignore[misc, valid-type]  # the class is the fixture's value
        async def close_session(self, state: Any) -> Any:
            await super().close_session(state)
            return object()

    agent = Odd()
    async with open_peer(agent) as peer:
        await peer.seed()
        assert (await peer.close()).json()["agent_observations"] is None
    assert agent.closed == ["a"]


async def test_a_repeated_close_is_not_changed_by_later_changes_to_the_observations(
    open_peer: Any, make_agent: Any
) -> None:
    """The receipt is what was answered, byte for byte."""
    shared = {"log": ["one"]}

    class Sharing(make_agent):  # type: ignore[misc, valid-type]  # the class is the fixture's value
        async def close_session(self, state: Any) -> Any:
            return shared

    async with open_peer(Sharing()) as peer:
        await peer.seed()
        first = await peer.close()
        shared["log"].append("two")
        assert (await peer.close()).body == first.body


BAD_BODIES = [
    {"episode_id": {"rollout_id": "1-0", "attempt": "0"}},
    {"episode_id": {"rollout_id": "1-0", "attempt": 0, "more": 1}},
    {"episode_id": {"rollout_id": ""}},
    {"episode_id": {"rollout_id": "1-0\n"}},
    {"episode_id": "1-0"},
    {"task_id": {"taskset": "", "task_id": "1"}},
    {"task_id": {"taskset": "t"}},
    {"session_id": 7},
    {"session_id": None},
    {"tool_accesses": {}},
    {"tool_accesses": [{**DIRECT, "required": None}]},
    {"tool_accesses": [{**DIRECT, "base_url": "shop"}]},
    {"tool_accesses": [{**DIRECT, "cookies": {"a": 1}}]},
    {"tool_accesses": [{**DIRECT, "name": "a b"}]},
    {
        "tool_accesses": [
            {"kind": "mcp", "name": "m", "required": True, "connection": {"transport": "smoke", "url": "http://x"}}
        ]
    },
    {"sandbox_access": {"workdir": "/w"}},
    {"sandbox_access": {"connection": {"kind": "direct", "provider_config_ref": "p"}, "workdir": "/w"}},
]


@pytest.mark.parametrize("change", BAD_BODIES, ids=repr)
async def test_what_does_not_validate_is_422_and_opens_nothing(agent: Any, open_peer: Any, change: Any) -> None:
    """A wrong field is named in the answer."""
    async with open_peer(agent) as peer:
        refused = await peer.seed(**{"session_id": "a", **change})
        assert refused.status == 422
        assert "$" in refused.json()["detail"] or "xpected" in refused.json()["detail"]
    assert agent.opened == []


GOOD_BODIES = [
    {
        "tool_accesses": [
            {"kind": "mcp", "name": "m", "required": False, "connection": {"transport": "stdio", "command": "x"}}
        ]
    },
    {
        "tool_accesses": [
            DIRECT,
            {
                "kind": "mcp",
                "name": "m",
                "required": True,
                "connection": {"transport": "streamable_http", "url": "https://x/y"},
            },
        ]
    },
    {
        "sandbox_access": {
            "connection": {"kind": "direct", "provider_config_ref": "p", "descriptor": {"id": 1}},
            "workdir": "/w",
        }
    },
    {"sandbox_access": None, "tool_accesses": []},
]


@pytest.mark.parametrize("more", GOOD_BODIES, ids=repr)
async def test_every_form_of_access_is_taken(agent: Any, open_peer: Any, more: Any) -> None:
    """And a seed that spells out a default equals one that leaves it out."""
    async with open_peer(agent) as peer:
        assert (await peer.seed(**more)).status == 200
        same = {key: value for key, value in more.items() if value}
        assert (await peer.seed(**same)).status == 200
    assert agent.opened == ["a"]


async def test_sessions_with_odd_ids_work(agent: Any, open_peer: Any) -> None:
    """An id is any string: slashes, spaces, semicolons and other alphabets survive the cookie."""
    async with open_peer(agent) as peer:
        for session_id in ("a/b", "a; b=c", "übung 一", "x" * 2000, '"'):
            client = peer.another()
            assert (await client.seed(session_id)).status == 200
            assert (await client.post("/v1/responses")).status == 200
            assert (await client.close(session_id)).json()["agent_session_id"] == session_id


async def test_after_shutdown_seeds_get_503_and_unconfirmed_sessions_can_be_closed(
    agent: Any, open_peer: Any, autojump_clock: Any
) -> None:
    """The application is still alive in memory: its status names what was not confirmed, and a close works."""
    agent.fail_closes = 1
    async with open_peer(agent) as peer:
        await peer.seed()
    status = await peer.get("/status")
    assert status["last_drain"]["unconfirmed"][0][0] == "a"
    assert "the sandbox is gone" in status["last_drain"]["unconfirmed"][0][1]
    assert (await peer.seed("b", fresh=True)).status == 503
    assert (await peer.close()).status == 200
    assert agent.closed == ["a"]


async def test_before_startup_sessions_get_503(agent: Any) -> None:
    """An app whose lifespan has not started owns no sessions yet."""
    from gym_trio.http import MemoryTransport, ServerClient

    client = ServerClient({"agent": (MemoryTransport(agent.app), "http://agent")})
    refused = await client.post("agent", "/v1/agent_sessions/close", json={})
    assert refused.status == 422
    status = (await client.get("agent", "/status")).json()
    assert status["sessions"] is None


async def test_status_counts_and_shows_no_states(agent: Any, open_peer: Any, autojump_clock: Any) -> None:
    """Sessions by phase, the oldest, the closes that run; nothing of what they hold."""
    agent.close_seconds = 60
    async with open_peer(agent) as peer, trio.open_nursery() as nursery:
        await peer.seed("a", fresh=True, tool_accesses=[{**DIRECT, "cookies": {"session_id": "secret-token"}}])
        await trio.sleep(5)
        await peer.seed("b", fresh=True)
        await peer.close("zz", fresh=True)
        nursery.start_soon(peer.another().close, "a")
        await wait_all_tasks_blocked()
        response = await peer.client.get("agent", "/status")
        sessions = response.json()["sessions"]
        expected = {"seeding": 0, "ready": 1, "closing": 1, "receipts": 1, "closes_running": 1, "oldest_seconds": 5.0}
        assert {key: sessions[key] for key in expected} == expected
        assert "secret-token" not in response.text
        agent.close_seconds = 0


async def test_capabilities_say_what_a_caller_may_rely_on(make_agent: Any, open_peer: Any) -> None:
    """With the bounds that apply to this agent."""
    async with open_peer(make_agent(config={"session_close_timeout_seconds": 7})) as peer:
        said = await peer.get("/v1/agent_sessions/capabilities")
    assert said["agent_sessions"] is said["stop_rollout"] is True
    assert (said["session_close_timeout_seconds"], said["session_close_retry_window_seconds"]) == (7, 300)


async def test_an_agent_type_has_a_bound_of_its_own_and_its_block_comes_first(make_agent: Any, open_peer: Any) -> None:
    """The class's session_close_timeout_seconds applies where the block names none."""

    class Slow(make_agent):  # type: ignore[misc, valid-type]  # the class is the fixture's value
        session_close_timeout_seconds = 120

    for config, bound in (({}, 120), ({"session_close_timeout_seconds": 5}, 5)):
        agent = Slow(config=config)
        async with open_peer(agent):
            assert agent.sessions.timeouts.session_close_timeout_seconds == bound


@pytest.mark.parametrize("value", [-1, float("inf"), "soon"])
def test_wrong_bounds_are_refused_by_the_constructor(make_agent: Any, value: Any) -> None:
    """With the server's and the key's name, before anything runs."""
    with pytest.raises(ConfigError, match=r"agent\.session_close_timeout_seconds"):
        make_agent(config={"session_close_timeout_seconds": value})


async def test_idle_agent_sessions_expire_where_asked(make_agent: Any, open_peer: Any, autojump_clock: Any) -> None:
    """A request that runs keeps its session; afterwards the idle time closes it, and the owner finds the receipt."""
    agent = make_agent(config={"idle_ttl_seconds": 10})
    async with open_peer(agent) as peer:
        await peer.seed()
        assert (await peer.post("/v1/responses", {"seconds": 100})).status == 200
        await trio.sleep(11)
        assert agent.closed == ["a"]
        assert (await peer.close()).json()["agent_observations"] == {"turns": 1}
        assert (await peer.get("/status"))["sessions"]["expired"] == 1
