"""Sessions of environments: by cookie for plain rollouts, by id for episodes, over one registry."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from gym_trio.errors import SessionSetupError

TASK = {"taskset": "t", "task_id": "1"}
VERIFY = {"responses_create_params": {}, "response": {"output": []}}


def typed(session_id: str = "r", **more: Any) -> dict[str, Any]:
    episode = {"rollout_id": "1-0", "attempt": 0}
    return {"resources_session_id": session_id, "episode_id": episode, "task_id": TASK, "task_data": {}, **more}


def close_of(session_id: str = "r", rollout_id: str = "1-0") -> dict[str, Any]:
    return {"resources_session_id": session_id, "episode_id": {"rollout_id": rollout_id, "attempt": 0}}


async def test_plain_sessions_are_apart_and_closed_by_their_cookie(shop: Any, open_peer: Any) -> None:
    """Two rollouts, two states; closing twice is no error; afterwards the cookie is refused."""
    async with open_peer(shop) as peer:
        one, two = peer.another(), peer.another()
        for client, start in ((one, 1), (two, 10)):
            assert (await client.post("/seed_session", {"start": start})).json()["start"] == start
        assert (await one.post("/add", {"amount": 1})).json() == {"count": 2, "number": 1}
        assert (await two.post("/add", {"amount": 1})).json() == {"count": 11, "number": 2}
        assert (await one.post("/verify", VERIFY)).json()["reward"] == 2
        for _ in range(2):
            assert (await one.post("/close_session")).json() == {}
        assert shop.disposed == [1]
        assert (await one.post("/add", {"amount": 1})).status == 409
        assert (await one.post("/verify", VERIFY)).status == 409
        assert (await two.post("/verify", VERIFY)).json()["reward"] == 11
    assert shop.disposed == [1, 2]


async def test_ids_and_cookies_cannot_be_guessed_or_forged(shop: Any, open_peer: Any) -> None:
    """No request gets at a session without what this server has signed."""
    async with open_peer(shop) as peer:
        await peer.post("/seed_session")
        good = peer.jar["session_id"]
        for forged in (good[:-1] + ("A" if good[-1] != "A" else "B"), good.split(".")[0], "1", ""):
            peer.jar["session_id"] = forged
            assert (await peer.post("/add", {"amount": 1})).status == 409


async def test_a_seed_that_fails_leaves_no_session(shop: Any, open_peer: Any) -> None:
    """What was made for it is disposed of."""
    async with open_peer(shop) as peer:
        assert (await peer.post("/seed_session", {"bad": True})).status == 500
        await wait_all_tasks_blocked()
        assert shop.disposed == [1]
        assert not peer.jar


@pytest.mark.parametrize("where", ["create_seconds", "seed_seconds"])
@pytest.mark.parametrize("form", ["plain", "typed"])
async def test_a_seed_whose_client_leaves_leaves_no_session(
    shop: Any, open_peer: Any, until: Any, nursery: trio.Nursery, where: str, form: str
) -> None:
    """Over a socket, while the state is made and while it is prepared."""
    setattr(shop, where, 3600)
    async with open_peer(shop, "sockets") as peer:
        scope = trio.CancelScope()

        async def gone() -> None:
            with scope:
                await peer.post("/seed_session", typed() if form == "typed" else {})

        nursery.start_soon(gone)
        await until(lambda: shop.made == (where == "seed_seconds"))
        await wait_all_tasks_blocked(0.01)
        scope.cancel()
        await until(lambda: len(shop.disposed) == shop.made)
        await until(lambda: shop.sessions.statistics().live == 0)


async def test_a_vanished_rollouts_state_is_reclaimed(make_shop: Any, open_peer: Any, autojump_clock: Any) -> None:
    """A plain session whose client never comes back ends by its idle time; an episode's does not."""
    shop = make_shop(config={"minted_idle_ttl_seconds": 60})
    async with open_peer(shop) as peer:
        await peer.another().post("/seed_session")
        await peer.another().post("/seed_session", typed())
        await trio.sleep(50)
        assert shop.disposed == []
        await trio.sleep(11)
        assert shop.disposed == [1]
        assert (await peer.get("/status"))["sessions"]["expired"] == 1
        await trio.sleep(50_000)
        assert shop.disposed == [1]


async def test_times_to_live_can_be_switched_off(make_shop: Any, open_peer: Any, autojump_clock: Any) -> None:
    """A null in the block means that the session waits for its close, however long."""
    async with open_peer(make_shop(config={"minted_idle_ttl_seconds": None})) as peer:
        await peer.post("/seed_session")
        await trio.sleep(80_000)
        assert (await peer.post("/add", {"amount": 1})).status == 200


async def test_verify_without_a_session_has_a_fresh_one_that_ends(shop: Any, open_peer: Any) -> None:
    """Reverification needs no seed and leaves nothing behind."""
    async with open_peer(shop) as peer:
        assert (await peer.post("/verify", VERIFY)).json()["reward"] == 0
        await wait_all_tasks_blocked()
        assert shop.disposed == [1]
        assert shop.sessions.statistics().live == 0


async def test_a_typed_session_answers_repeated_seeds_and_closes_alike(shop: Any, open_peer: Any) -> None:
    """One state; tools and verifier find it by the cookie that the seed set; a stale cookie is refused."""
    async with open_peer(shop) as peer:
        first = await peer.post("/seed_session", typed(task_data={"start": 5}))
        assert first.json()["resources_session_id"] == "r"
        assert first.json()["start"] == 5
        assert first.json()["resources_tools"][0]["name"] == "add"
        assert (await peer.post("/seed_session", typed(task_data={"start": 5}), fresh=True)).body == first.body
        assert (await peer.post("/add", {"amount": 2})).json() == {"count": 7, "number": 1}
        assert (await peer.post("/verify", VERIFY)).json()["reward"] == 7
        for fresh in (False, True):
            closed = await peer.post("/close_session", close_of(), fresh=fresh)
            assert closed.json() == {"resources_session_id": "r"}
        assert (await peer.post("/add", {"amount": 2})).status == 409
        assert (await peer.post("/close_session")).json() == {}
    assert shop.disposed == [1]


async def test_half_made_states_are_disposed_of(make_shop: Any, open_peer: Any) -> None:
    """What create_session hands over when it fails, in both forms."""

    class Half(make_shop):  # type: ignore[misc, valid-type]  # the class is the fixture's value
        async def create_session(self) -> Any:
            raise SessionSetupError(await super().create_session(), "half made")

    shop = Half()
    async with open_peer(shop) as peer:
        for body in ({}, typed()):
            failed = await peer.post("/seed_session", body)
            assert (failed.status, "half made" in failed.text) == (500, True)
        await wait_all_tasks_blocked()
        assert shop.disposed == [1, 2]


async def test_typed_conflicts_are_409(make_shop: Any, open_peer: Any, autojump_clock: Any) -> None:
    """Other data, another episode, another id's cookie, a spent id, an expired receipt."""
    async with open_peer(make_shop(config={"session_close_retry_window_seconds": 10})) as peer:
        await peer.post("/seed_session", typed())
        assert (await peer.post("/seed_session", typed(task_data={"x": 1}))).status == 409
        assert (await peer.post("/seed_session", typed("other"))).status == 409
        assert (await peer.post("/close_session", close_of("other"))).status == 409
        assert (await peer.post("/close_session", close_of(rollout_id="9-0"))).status == 409
        assert (await peer.post("/close_session", close_of())).status == 200
        assert (await peer.post("/seed_session", typed(), fresh=True)).status == 409
        assert (await peer.post("/close_session", close_of("zz"), fresh=True)).status == 200
        assert (await peer.post("/seed_session", typed("zz"), fresh=True)).status == 409
        await trio.sleep(11)
        assert (await peer.post("/close_session", close_of())).status == 409


@pytest.mark.parametrize("change", [{"more": 1}, {"task_data": None}, {"resources_session_id": ""}])
async def test_typed_bodies_are_strict(shop: Any, open_peer: Any, change: Any) -> None:
    """What does not validate is 422 and makes nothing."""
    async with open_peer(shop) as peer:
        assert (await peer.post("/seed_session", typed() | change)).status == 422
    assert shop.made == 0


async def test_a_disposal_that_fails_is_tried_again(shop: Any, open_peer: Any) -> None:
    """The typed close answers 500 and keeps the state; the next one disposes of it."""
    shop.fail_disposals = 1
    async with open_peer(shop) as peer:
        await peer.post("/seed_session", typed())
        assert (await peer.post("/close_session", close_of())).status == 500
        assert (await peer.post("/close_session", close_of())).status == 200
    assert shop.disposed == [1]


async def test_a_typed_seed_that_fails_is_told_and_its_state_disposed_of(shop: Any, open_peer: Any) -> None:
    """The answer has the author's own error; the id is spent."""
    async with open_peer(shop) as peer:
        failed = await peer.post("/seed_session", typed(task_data={"bad": True}))
        assert failed.status == 500
        assert "a bad row" in failed.json()["detail"]
        await wait_all_tasks_blocked()
        assert shop.disposed == [1]
        assert (await peer.post("/seed_session", typed(task_data={"bad": True}))).status == 409


async def test_a_state_made_while_the_server_shuts_down_is_disposed_of(
    shop: Any, open_peer: Any, nursery: trio.Nursery, autojump_clock: Any
) -> None:
    """Its seed gets 503, and the state that came too late for the registry ends all the same."""
    shop.create_seconds = 5
    answers: list[Any] = []

    async def seed(peer: Any) -> None:
        answers.append(await peer.post("/seed_session"))

    async with open_peer(shop) as peer:
        nursery.start_soon(seed, peer)
        await trio.sleep(1)
    await trio.sleep(10)
    assert answers[0].status == 503
    assert shop.disposed == [1]
    assert (await peer.post("/seed_session", fresh=True)).status == 503
    assert shop.made == 1


async def test_states_that_hold_nothing_cost_no_task(make_shop: Any) -> None:
    """Only a session with something to release has a close to run."""
    from gym_trio.servers import ResourcesServer, Session

    class Plain(ResourcesServer):
        pass

    closable = Session()
    closable.aclose = lambda: None  # type: ignore[attr-defined]  # a session is whatever its author makes it
    assert not Plain(name="p").holds_resources(Session())
    assert Plain(name="p").holds_resources(closable)
    assert make_shop().holds_resources({})
