"""Games for one player of the ``textarena`` package."""

from __future__ import annotations

import hashlib
import random
import re
import secrets
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

import attrs

from ..config import positive_int, structure
from ..errors import ConfigError, MissingExtraError, RequestRefused
from ..servers import COMMON_KEYS, GymnasiumServer, RequestBody, ResetAnswer, StepAnswer, output_text
from ..threads import Threads

__all__ = ["TextArena", "TextArenaSettings"]

T = TypeVar("T")

# Games for one player that need nothing from a network.
GAMES = (
    "FrozenLake-v0",
    "GuessTheNumber-v0",
    "LightsOut-v0",
    "Mastermind-v0",
    "Minesweeper-v0",
    "Secretary-v0",
    "TowerOfHanoi-v0",
)
# Python has one source of random numbers, so there is one turn, for all servers of this process; a call whose task was
# cancelled keeps it until it has ended in its thread.
_TURN = threading.Lock()
_THOUGHTS = re.compile(r"<think>.*?</think>", re.DOTALL)


@attrs.frozen(kw_only=True)
class TextArenaSettings:
    """The keys of a ``textarena`` block besides the common ones.

    ``env_ids`` are the games that rows may ask for. ``size`` rows are made, with the seeds from ``seed`` on.
    """

    env_ids: list[str] = attrs.field(factory=lambda: list(GAMES))
    size: int = attrs.field(default=35, validator=positive_int)
    seed: int = 1


@attrs.define(eq=False)
class Game:
    """The state of one session: the game, and the random numbers that are its own."""

    env: Any = None
    numbers: Any = None


class TextArena(GymnasiumServer):
    """Games for one player of the ``textarena`` package. The reward is the game's own, when it ends.

    A row has ``env_id`` (one of the settings' ``env_ids``, which without it is the first) and ``seed`` (without it the
    rollout's id makes one). The whole reply, without ``<think>`` parts, is the move; most games look for it in square
    brackets. What the game answers is the next observation, also where a move is not legal.

    The package draws from Python's one source of random numbers. Each session has a state of that source of its own,
    which is put in place for the time of a call; so a session's game is the same, whatever goes on beside it. Calls
    run in a thread, one at a time for all sessions of the process.

    Source of the rule: the ``textarena`` package's games themselves. Of its games, those that load lists of words from
    the network are not among the defaults.

    **Errors**: `MissingExtraError` without the ``textarena`` extra; what a game raises fails its rollout.
    """

    description = "Games for one player of the textarena package"
    domain = "games"
    session_type = Game
    settings_type = TextArenaSettings

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        package()
        self._thread = Threads(1)

    @classmethod
    def rows(cls, config: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        """``size`` rows, the games in turn. **Errors**: `ConfigError` for one that does not exist."""
        settings = structure(TextArenaSettings, config, key="textarena", ignore=COMMON_KEYS)
        for env_id in settings.env_ids:
            if env_id not in package().envs.registration.ENV_REGISTRY:
                raise ConfigError(f"textarena has no game {env_id!r}", key="textarena.env_ids")
        ask = "You play a game. Make one move in each reply, in the form that the game asks for."
        for position in range(settings.size):
            yield {
                "responses_create_params": {"input": [{"role": "system", "content": ask}]},
                "env_id": settings.env_ids[position % len(settings.env_ids)],
                "seed": settings.seed + position,
            }

    async def reset(self, session: Game, row: RequestBody) -> ResetAnswer:
        env_id = row.get("env_id", self.settings.env_ids[0])
        if env_id not in self.settings.env_ids:
            known = ", ".join(self.settings.env_ids)
            raise RequestRefused(422, f"env_id: {env_id!r} is not one of this server's: {known}")
        seed = _seed_of(row)

        def begin() -> str:
            session.env = package().make(env_id)
            session.env.reset(num_players=1, seed=seed)
            return str(session.env.get_observation()[1])

        session.numbers = random.Random(seed).getstate()
        return await self._play(session, begin)

    async def step(self, session: Game, response: Mapping[str, Any], row: RequestBody) -> StepAnswer:
        move = _THOUGHTS.sub("", output_text(response)).strip()

        def play() -> StepAnswer:
            done, _ = session.env.step(move)
            if not done:
                return str(session.env.get_observation()[1]), 0.0, False, False, {}
            rewards, info = session.env.close()
            return None, float(rewards[0]), True, False, {"reason": str(info[0].get("reason") or "")}

        return await self._play(session, play)

    async def _play(self, session: Game, call: Callable[[], T]) -> T:
        def play() -> T:
            with _TURN:
                outside = random.getstate()
                random.setstate(session.numbers)
                try:
                    return call()
                finally:
                    session.numbers = random.getstate()
                    random.setstate(outside)

        return await self._thread.run(play)


def package() -> Any:
    """The ``textarena`` package. **Errors**: `MissingExtraError`."""
    try:
        import textarena
    except ImportError as error:
        raise MissingExtraError(f"the environment textarena ({error})", extra="textarena") from None
    return textarena


def _seed_of(row: RequestBody) -> int:
    seed = row.get("seed")
    if isinstance(seed, int) and not isinstance(seed, bool) and seed >= 0:
        return seed
    if seed is not None:
        raise RequestRefused(422, f"seed: must be a whole number of at least 0, not {seed!r}")
    named = row.rollout_id or secrets.token_hex(8)
    return int.from_bytes(hashlib.sha256(named.encode()).digest()[:4], "big")
