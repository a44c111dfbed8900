"""Sessions whose opening was cut off before its answer came."""

from __future__ import annotations

from typing import Any

import pytest
import trio
import trio.testing

from gym_trio.servers import AgentServer, EnvironmentLink, RequestBody, ResourcesServer, Session

KEY = "k" * 24


class Slow(ResourcesServer):
    """Its seed waits until it is let go, and counts what it made and released."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.counts = self.config["counts"]

    async def create_session(self) -> Session:
        await self.config["making"].wait()
        self.counts["created"] += 1  # from here on there is something to dispose of
        return Session()

    async def dispose_session(self, session: Session) -> None:
        self.counts["disposed"] += 1

    async def verify(self, session: Session, request: RequestBody) -> float:
        return 0.0


@pytest.fixture
def slow() -> dict[str, Any]:
    return {"counts": {"created": 0, "disposed": 0}, "making": trio.Event()}


async def post(gym: Any, path: str, key: str = KEY) -> Any:
    return await gym.client.post("env", path, json={}, headers={"x-ng-session-key": key})


async def test_a_session_is_closed_by_the_key_of_its_seed(open_servers: Any, slow: Any) -> None:
    """Whoever lost the seed's answer, and with it the cookie, closes by the key; twice is no error."""
    slow["making"].set()
    async with open_servers((Slow, "env", slow)) as gym:
        assert (await post(gym, "/seed_session")).status == 200
        for _ in range(2):
            assert (await post(gym, "/close_session")).status == 200
        assert slow["counts"] == {"created": 1, "disposed": 1}


async def test_a_seed_that_is_overtaken_by_its_close_is_refused(open_servers: Any, slow: Any) -> None:
    """What it had made is disposed of at once: nobody is left to close it."""
    async with open_servers((Slow, "env", slow)) as gym:
        statuses: list[int] = []

        async def seed() -> None:
            statuses.append((await post(gym, "/seed_session")).status)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(seed)
            await trio.testing.wait_all_tasks_blocked()
            assert (await post(gym, "/close_session")).status == 200
            slow["making"].set()
        assert statuses == [409]
        assert slow["counts"] == {"created": 1, "disposed": 1}


@pytest.mark.parametrize("key", ["short", "with spaces in it, and long", "x" * 65, "ü" * 24])
async def test_a_key_that_could_be_guessed_is_passed_over(open_servers: Any, slow: Any, key: str) -> None:
    """The session is opened under an id of the server's own, which such a key does not close."""
    slow["making"].set()
    async with open_servers((Slow, "env", slow)) as gym:
        assert (await post(gym, "/seed_session", key)).status == 200
        assert (await post(gym, "/close_session", key)).status == 200
        assert slow["counts"]["disposed"] == 0
    assert slow["counts"]["disposed"] == 1


async def test_a_key_opens_one_session(open_servers: Any, slow: Any) -> None:
    """A second seed with a key in use is refused, and the first session lives on."""
    slow["making"].set()
    async with open_servers((Slow, "env", slow)) as gym:
        first = await post(gym, "/seed_session")
        assert (await post(gym, "/seed_session")).status == 409
        body = {"response": {"output": []}}
        assert (await gym.client.post("env", "/verify", json=body, cookies=first.cookies())).status == 200


@pytest.mark.parametrize("serve", ["memory", "sockets"])
async def test_cut_off_at_any_step_nothing_is_left(open_servers: Any, slow: Any, serve: str) -> None:
    """The link is cancelled after ever more steps of the scheduler; each time it leaves no session."""
    slow["making"].set()
    made = ((Slow, "env", slow), (AgentServer, "agent", {}))
    async with open_servers(*made, serve=serve) as gym:
        agent = AgentServer(name="other", client=gym.client)

        async def open_and_close() -> None:
            link = EnvironmentLink(agent, "env", None)
            try:
                await link.open("/seed_session", {})
                await trio.sleep_forever()
            finally:
                await link.close()

        for steps in range(40):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(open_and_close)
                for _ in range(steps):
                    await trio.lowlevel.checkpoint()
                nursery.cancel_scope.cancel()
        with trio.fail_after(20):
            while slow["counts"]["created"] != slow["counts"]["disposed"]:
                await gym.client.get("env", "/status")
        assert (await gym.client.get("env", "/status")).json()["sessions"]["ready"] == 0
    assert slow["counts"]["created"] > 0


class Gone(ResourcesServer):
    """It closes a session when its row says so; else it answers an error, or nothing in time."""

    async def dispose_session(self, session: Session) -> None:
        if self.config["broken"]["now"] == "error":
            raise ValueError("no")
        if self.config["broken"]["now"] == "hang":
            await trio.sleep_forever()


@pytest.mark.parametrize("how", ["error", "hang"])
async def test_an_environment_that_closes_no_session_is_told_of_once(
    open_servers: Any, caplog: pytest.LogCaptureFixture, autojump_clock: Any, how: str
) -> None:
    """Not once for each rollout; and again when it had closed one in between."""
    broken = {"now": how}
    async with open_servers((Gone, "env", {"broken": broken}), (AgentServer, "agent", {})) as gym:
        agent = AgentServer(name="other", client=gym.client)

        async def open_and_close() -> None:
            link = EnvironmentLink(agent, "env", None)
            await link.open("/seed_session", {})
            await link.close()

        for now, told in ((how, 1), (how, 1), ("fine", 1), (how, 2), (how, 2)):
            broken["now"] = now
            await open_and_close()
            said = [one for one in caplog.records if "did not close a session" in one.message]
            assert sum(one.levelname == "WARNING" for one in said) == told
