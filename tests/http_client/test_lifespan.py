"""`open_lifespan`: startup and shutdown around a block, in an app's own task."""

from __future__ import annotations

import contextlib
import logging

import pytest
import trio
from starlette.applications import Starlette

from gym_trio.errors import GymError, ServerStartError
from gym_trio.http import open_lifespan


class App:
    """Says and does what its script has for startup and shutdown."""

    def __init__(self, *, startup: str = "complete", shutdown: str = "complete") -> None:
        self.events: list[str] = []
        self._plan = {"lifespan.startup": startup, "lifespan.shutdown": shutdown}

    async def __call__(self, scope, receive, send) -> None:
        assert scope["type"] == "lifespan"
        scope["state"]["ready"] = True
        while True:
            kind = (await receive())["type"]
            self.events.append(kind.removeprefix("lifespan."))
            match self._plan[kind]:
                case "complete" | "failed" as what:
                    await send({"type": f"{kind}.{what}", "message": "no model"})
                case "raise":
                    raise ValueError("broken")
                case "return":
                    return
                case "hang":
                    try:
                        await trio.sleep_forever()
                    finally:
                        self.events.append("cut")
            if kind == "lifespan.shutdown":
                return


async def test_startup_comes_before_the_block_and_shutdown_after_it() -> None:
    """The block is given the state that the app has filled."""
    app = App()
    async with open_lifespan(app) as state:
        assert state == {"ready": True}
        assert app.events == ["startup"]
    assert app.events == ["startup", "shutdown"]


async def raises_at_once(scope, receive, send) -> None:
    raise ValueError(scope["type"])


async def returns_at_once(scope, receive, send) -> None:
    return


async def answers_anything(scope, receive, send) -> None:
    await receive()
    await send({"type": "http.response.start", "status": 200})
    await trio.sleep_forever()


@pytest.mark.parametrize("app", [raises_at_once, returns_at_once, answers_anything, App(startup="return")])
async def test_an_app_without_a_lifespan_is_fine(app) -> None:
    """One that does not know the scope, leaves it without a word, or does not look at it."""
    async with open_lifespan(app) as state:
        assert isinstance(state, dict)


@pytest.mark.parametrize(
    ("startup", "expected"), [("failed", "no model"), ("raise", "broken"), ("hang", "over 0.05 s")]
)
async def test_a_startup_that_fails_is_an_error_with_the_servers_name(startup: str, expected: str) -> None:
    """It said so, raised, or took too long; the block is not entered."""
    app = App(startup=startup)
    with pytest.raises(ServerStartError, match=expected) as caught:
        async with open_lifespan(app, server="judge", startup_bound_seconds=0.05):
            raise AssertionError
    assert caught.value.server == "judge"
    assert "shutdown" not in app.events


@pytest.mark.parametrize(
    ("shutdown", "expected"), [("failed", "no model"), ("raise", "broken"), ("hang", "over 0.05 s")]
)
async def test_a_shutdown_that_fails_is_raised_where_nothing_else_is(shutdown: str, expected: str, caplog) -> None:
    """From a block that ended well; where the block raised, its own exception is kept and the failure is logged."""
    with pytest.raises(GymError, match=expected):
        async with open_lifespan(App(shutdown=shutdown), server="judge", shutdown_bound_seconds=0.05):
            pass
    assert caplog.records == []
    with caplog.at_level(logging.ERROR), pytest.raises(KeyError, match="mine"):
        async with open_lifespan(App(shutdown=shutdown), server="judge", shutdown_bound_seconds=0.05):
            raise KeyError("mine")
    assert "judge" in caplog.text
    assert expected in caplog.text


async def test_shutdown_runs_when_the_block_is_cancelled() -> None:
    """In full, within its own bound."""
    events = []

    async def app(scope, receive, send) -> None:
        await receive()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        for _ in range(20):
            await trio.lowlevel.checkpoint()
        events.append("drained")
        await send({"type": "lifespan.shutdown.complete"})
        await trio.lowlevel.checkpoint()
        events.append("returned")

    with trio.CancelScope() as scope:
        async with open_lifespan(app):
            scope.cancel()
            await trio.lowlevel.checkpoint()
    assert scope.cancelled_caught
    assert events == ["drained", "returned"]


async def test_a_shutdown_that_hangs_is_cut_also_under_cancellation(autojump_clock) -> None:
    """After its bound, and not before."""
    app = App(shutdown="hang")
    began = trio.current_time()
    with trio.CancelScope() as scope:
        async with open_lifespan(app, shutdown_bound_seconds=7):
            scope.cancel()
            await trio.lowlevel.checkpoint()
    assert trio.current_time() - began == pytest.approx(7)
    assert app.events == ["startup", "shutdown", "cut"]


async def test_a_startup_that_is_cancelled_ends_the_app() -> None:
    """Nothing of it runs on."""
    app = App(startup="hang")
    with trio.CancelScope() as scope:

        async def watch() -> None:
            await trio.testing.wait_all_tasks_blocked()
            scope.cancel()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(watch)
            async with open_lifespan(app):
                raise AssertionError
    assert app.events == ["startup", "cut"]


async def test_an_app_that_ends_while_it_is_needed_is_reported() -> None:
    """At the latest when its block is left."""

    async def app(scope, receive, send) -> None:
        await receive()
        await send({"type": "lifespan.startup.complete"})
        raise ValueError("broken")

    with pytest.raises(GymError, match="broken"):
        async with open_lifespan(app):
            await trio.testing.wait_all_tasks_blocked()


async def test_starlettes_lifespan_works() -> None:
    """Its state arrives, its failures are errors."""

    @contextlib.asynccontextmanager
    async def lifespan(app):
        yield {"db": 1}

    async with open_lifespan(Starlette(lifespan=lifespan)) as state:
        assert state == {"db": 1}

    @contextlib.asynccontextmanager
    async def broken(app):
        raise ValueError("no db")
        yield

    with pytest.raises(ServerStartError, match="no db"):
        async with open_lifespan(Starlette(lifespan=broken)):
            raise AssertionError


async def test_what_gym_trio_raised_at_startup_is_told_without_a_traceback() -> None:
    """The error says what is wrong; where in the code it was noticed is nothing to a user."""

    @contextlib.asynccontextmanager
    async def broken(app):
        raise ServerStartError("the child did not come up", server="child")
        yield

    with pytest.raises(ServerStartError) as caught:
        async with open_lifespan(Starlette(lifespan=broken), server="judge"):
            raise AssertionError
    assert str(caught.value) == "judge: startup failed: the child did not come up"


@pytest.mark.parametrize("when", ["in the block", "at shutdown"])
async def test_an_interrupt_in_a_lifespan_ends_the_block_at_once(autojump_clock, when: str) -> None:
    """Whoever owns it does not wait for an end that has been."""
    go = trio.Event()

    async def app(scope, receive, send) -> None:
        await receive()
        await send({"type": "lifespan.startup.complete"})
        if when == "in the block":
            await go.wait()
        else:
            await receive()
        raise KeyboardInterrupt

    began = trio.current_time()
    with pytest.RaisesGroup(KeyboardInterrupt):
        async with open_lifespan(app):
            go.set()
            if when == "in the block":
                await trio.sleep_forever()
    assert trio.current_time() == began
