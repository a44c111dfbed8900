"""The contract's own exchanges, over sockets."""

from __future__ import annotations

import json
import pathlib
from typing import Any

import pytest

from gym_trio.servers import AgentServer

GOLDEN = pathlib.Path(__file__).parents[3] / "shared" / "golden" / "agent_sessions.json"
CASES: list[dict[str, Any]] = json.loads(GOLDEN.read_bytes()) if GOLDEN.exists() else []


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
async def test_every_exchange_of_the_contract_gets_its_status_body_and_cookie(open_peer: Any, case: Any) -> None:
    """Requests as they were sent to NeMo Gym get what it answered."""
    async with open_peer(AgentServer(name="agent"), "sockets") as peer:
        for step in case["steps"]:
            response = await peer.post(step["path"], step["request"], fresh=step["client"] == "fresh")
            assert response.status == step["status"]
            if step["response"] is not None:
                assert response.json() == step["response"]
            assert ("agent_session_id" in response.cookies()) == step["sets_cookie"]


def test_the_contract_is_here() -> None:
    """The exchanges are part of the test data; without them nothing above has run."""
    if not CASES:
        pytest.skip(f"the contract's data is not at {GOLDEN}")
    assert len(CASES) == 28
