"""Where the time of a rollout went, as an agent's author measures it."""

from __future__ import annotations

import pytest
import trio

from gym_trio.servers import RequestBody


@pytest.mark.parametrize("ending", ["well", "fails", "is cancelled"])
async def test_a_block_and_a_call_are_measured_alike(autojump_clock: object, ending: str) -> None:
    """However they end, one inside the other; what is measured again adds up."""
    stages = RequestBody().stages

    async def work(seconds: float) -> str:
        assert stages.stage == "inner"
        await trio.sleep(seconds)
        if ending == "fails":
            raise ValueError("no")
        return "done"

    async def outer() -> None:
        with stages.measure("plan"):
            await trio.sleep(2)
            assert await stages.measured("inner", work(1)) == "done"
            with stages.measure("inner"):
                assert await work(0.5) == "done"
            assert stages.stage == "plan"

    match ending:
        case "well":
            await outer()
            expected = {"inner_ms": 1500.0, "plan_ms": 3500.0}
        case "fails":
            with pytest.raises(ValueError, match="no"):
                await outer()
            expected = {"inner_ms": 1000.0, "plan_ms": 3000.0}
        case _:
            with trio.move_on_after(2.5):
                await outer()
            expected = {"inner_ms": 500.0, "plan_ms": 2500.0}
    assert stages.stage is None
    assert stages.milliseconds() == expected
