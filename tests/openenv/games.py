"""Environments of OpenEnv that the tests play, served by OpenEnv's own ``create_app``; run by a Python that has it.

``app`` has one of each kind under a path of its own, and ``/sessions``: how many environments there are now. ``word``
alone is what ``word_app`` serves.
"""

from __future__ import annotations

import os
import threading
import time
from typing import Any

from fastapi import FastAPI
from fastmcp import FastMCP
from openenv.core.env_server import Environment, create_app
from openenv.core.env_server.mcp_environment import MCPEnvironment
from openenv.core.env_server.mcp_types import CallToolAction, CallToolObservation
from openenv.core.env_server.types import Action, Observation, State
from pydantic import Field

LOCK = threading.Lock()
COUNTS = {"made": 0, "closed": 0, "resets": 0}


def count(what: str) -> None:
    with LOCK:
        COUNTS[what] += 1


class Word(Action):
    word: str = Field(description="one word of five letters")


class Pair(Action):
    row: int
    column: int = Field(ge=0, le=2)


class Number(Action):
    number: int


class Text(Observation):
    text: str


class Board(Observation):
    board: list[int]
    hint: str | None = None


class Counted(Environment):
    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self) -> None:
        super().__init__()
        self.steps = 0
        count("made")

    @property
    def state(self) -> State:
        return State(step_count=self.steps)

    def close(self) -> None:
        count("closed")


class WordGame(Counted):
    """``right`` ends it with 1, or with 0 where the answer is another; other words say or do what they say."""

    answer = "right"

    def reset(self, seed: int | None = None, episode_id: str | None = None, **options: Any) -> Observation:
        count("resets")
        self.steps = 0
        self.answer = options.get("answer", "right")
        if options.get("fail"):
            raise RuntimeError("no board")
        time.sleep(options.get("seconds", 0))
        return Text(text=f"seed {seed} options {options} pid {os.getpid()}", done=options.get("over", False))

    def step(self, action: Word, timeout_s: float | None = None, **options: Any) -> Observation:
        self.steps += 1
        match action.word.split():
            case ["right"]:
                won = self.answer == "right"
                return Text(text="yes" if won else "no", reward=float(won), done=True)
            case ["warm", amount]:
                return Text(text="warmer", reward=float(amount))
            case ["nan"]:
                return Text(text="?", reward=float("nan"), done=True)
            case ["unscored"]:
                return Text(text="?", done=True)
            case ["raise"]:
                raise RuntimeError("the board broke")
            case ["die"]:
                os._exit(3)
            case ["large", size]:
                return Text(text="x" * int(size))
            case ["sleep", seconds]:
                time.sleep(float(seconds))
        return Text(text=f"step {self.steps}")


class PairGame(Counted):
    def reset(self, seed: int | None = None, episode_id: str | None = None, **options: Any) -> Observation:
        return Board(board=[0, 1], hint=None)

    def step(self, action: Pair, timeout_s: float | None = None, **options: Any) -> Observation:
        done = action.row == action.column == 1
        return Board(board=[action.row, action.column], hint="1 and 1", reward=float(done), done=done)


class NumberGame(Counted):
    def reset(self, seed: int | None = None, episode_id: str | None = None, **options: Any) -> Observation:
        return Observation(metadata={"range": [1, 9], "episode_id": episode_id})

    def step(self, action: Number, timeout_s: float | None = None, **options: Any) -> Observation:
        return Text(text="it is 7", reward=float(action.number == 7), done=action.number == 7)


class ToolGame(MCPEnvironment):
    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self) -> None:
        tools = FastMCP("sums")
        self.found: int | None = None

        @tools.tool
        def add(a: int, b: int) -> int:
            """Add two numbers."""
            return a + b

        @tools.tool
        def submit(number: int) -> str:
            """Say the answer."""
            self.found = number
            return "noted"

        super().__init__(tools)
        count("made")

    def reset(self, seed: int | None = None, episode_id: str | None = None, **options: Any) -> Observation:
        return Observation(metadata={"task": "2+3"})

    async def step_async(self, action: Any, timeout_s: float | None = None, **options: Any) -> Observation:
        seen = await super().step_async(action, timeout_s=timeout_s, **options)
        if self.found is not None:
            seen.done, seen.reward = True, float(self.found == 5)
        return seen

    def _step_impl(self, action: Any, timeout_s: float | None = None, **options: Any) -> Observation:
        raise NotImplementedError

    @property
    def state(self) -> State:
        return State()

    def close(self) -> None:
        super().close()
        count("closed")


word_app = create_app(WordGame, Word, Text, env_name="word", max_concurrent_envs=64)

app = FastAPI()
app.mount("/word", create_app(WordGame, Word, Text, env_name="word", max_concurrent_envs=64))
app.mount("/single", create_app(WordGame, Word, Text, env_name="single"))
app.mount("/pair", create_app(PairGame, Pair, Board, env_name="pair", max_concurrent_envs=64))
app.mount("/number", create_app(NumberGame, Number, Text, env_name="number", max_concurrent_envs=64))
app.mount("/tools", create_app(ToolGame, CallToolAction, CallToolObservation, env_name="tools", max_concurrent_envs=64))


@app.get("/health")
async def health() -> dict[str, str]:
    return {"status": "healthy"}


@app.get("/sessions")
async def sessions() -> dict[str, int]:
    with LOCK:
        return {**COUNTS, "open": COUNTS["made"] - COUNTS["closed"]}
