"""Environments of the ``gymnasium`` package, played in text."""

from __future__ import annotations

import functools
import hashlib
import json
import re
import secrets
from collections.abc import Iterator, Mapping
from typing import Any

import attrs

from ..config import positive_int, structure
from ..errors import ConfigError, MissingExtraError, RequestRefused
from ..servers import COMMON_KEYS, GymnasiumServer, RequestBody, ResetAnswer, StepAnswer, output_text
from ._gymnasium_session import GymnasiumSession
from ._gymnasium_texts import ACTIONS, RULES, describe

__all__ = ["Gymnasium", "GymnasiumSettings"]

_ACTION = re.compile(r"<action>(.*?)</action>", re.DOTALL | re.IGNORECASE)


@attrs.frozen(kw_only=True)
class GymnasiumSettings:
    """The keys of a ``gymnasium`` block besides the common ones.

    ``env_ids`` are the environments that rows may ask for: names that ``gymnasium.make`` knows, also of the form
    ``module:Name-v0``. ``options`` go to ``gymnasium.make``. ``size`` rows are made, with the seeds from ``seed`` on.
    """

    env_ids: list[str] = attrs.field(factory=lambda: list(RULES))
    options: dict[str, Any] = attrs.field(factory=dict)
    size: int = attrs.field(default=40, validator=positive_int)
    seed: int = 1


class Gymnasium(GymnasiumServer):
    """Serves any ``gymnasium.Env`` that can be played in text; by default the toy-text ones.

    A row has ``env_id`` (one of the settings' ``env_ids``, which without it is the first), ``seed`` (without it the
    rollout's id makes one) and ``env_options`` for ``gymnasium.make``. A reply names its action as
    ``<action>...</action>``, the last one counts: an action's name, or its JSON value. A reply without a legal action
    is told which there are; it moves nothing and costs a step of the agent's. The rewards are the environment's own.

    For an environment of your own, name it in ``env_ids``, or derive from this class: `make_env`, `describe` and
    `action_of`. Its calls run in a thread, one at a time per session.

    Source of the rule: the ``gymnasium`` package's environments themselves.

    **Errors**: `MissingExtraError` without the ``gymnasium`` extra; what the environment raises fails its rollout.

    **Cancellation**: is not waited for by the thread: the environment is closed once its running call has returned.
    """

    description = "Environments of the gymnasium package in text (toy text by default)"
    domain = "games"
    session_type = GymnasiumSession
    settings_type = GymnasiumSettings

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        package()

    @classmethod
    def rows(cls, config: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        """``size`` rows, the environments in turn. **Errors**: `ConfigError` for one that does not exist."""
        settings = structure(GymnasiumSettings, config, key="gymnasium", ignore=COMMON_KEYS)
        for env_id in settings.env_ids:
            if ":" not in env_id and env_id not in package().registry:
                raise ConfigError(f"gymnasium has no environment {env_id!r}", key="gymnasium.env_ids")
        return _rows(settings)

    async def reset(self, session: GymnasiumSession, row: RequestBody) -> ResetAnswer:
        env_id = row.get("env_id", self.settings.env_ids[0])
        if env_id not in self.settings.env_ids:
            known = ", ".join(self.settings.env_ids)
            raise RequestRefused(422, f"env_id: {env_id!r} is not one of this server's: {known}")
        options = {**self.settings.options, **(row.get("env_options") or {})}
        seed = _seed_of(row)
        make = functools.partial(self.make_env, env_id, options)
        observation, _ = await self.in_thread(session.begin, make, seed)
        return await self.in_thread(session.look, self.describe, observation)

    async def step(self, session: GymnasiumSession, response: Mapping[str, Any], row: RequestBody) -> StepAnswer:
        found = _ACTION.findall(output_text(response))
        try:
            action = self.action_of(session.env, found[-1].strip() if found else "")
        except ValueError as error:
            return f"That is no action: {error}", 0.0, False, False, {}
        observation, reward, terminated, truncated, _ = await self.in_thread(session.step, action)
        done = bool(terminated or truncated)
        text = None if done else await self.in_thread(session.look, self.describe, observation)
        return text, float(reward), bool(terminated), bool(truncated), {}

    async def dispose_session(self, session: GymnasiumSession) -> None:
        if session.env is not None:
            await self.in_thread(session.close)

    def holds_resources(self, session: Any) -> bool:
        return True

    def make_env(self, env_id: str, options: Mapping[str, Any]) -> Any:
        """The environment of one session; in text rendering where it can. Runs in a thread."""
        spec = package().spec(env_id)
        modes = getattr(_class_of(spec), "metadata", {}).get("render_modes") or ()
        render = {"render_mode": "ansi"} if "ansi" in modes else {}
        return package().make(env_id, **{"disable_env_checker": True, **render, **options})

    def describe(self, env: Any, observation: Any) -> str:
        """What the model sees of the environment. Runs in a thread."""
        return describe(env, observation)

    def action_of(self, env: Any, text: str) -> Any:
        """The action that a reply names. **Errors**: `ValueError` whose text tells the model what is legal."""
        names = ACTIONS.get(env.spec.id if env.spec else "", ())
        if text.lower() in names:
            return names.index(text.lower())
        legal = ", ".join(names) or f"a JSON value of {env.action_space}"
        try:
            value = json.loads(text)
            value = env.action_space.from_jsonable([value])[0] if not isinstance(value, int | float) else value
        except (ValueError, TypeError, KeyError, IndexError, RecursionError):
            raise ValueError(f"{text[:100]!r}; <action> takes one of: {legal}") from None
        if isinstance(value, bool) or not env.action_space.contains(value):
            raise ValueError(f"{text[:100]!r}; <action> takes one of: {legal}")
        return value


def package() -> Any:
    """The ``gymnasium`` package. **Errors**: `MissingExtraError`."""
    try:
        import gymnasium
    except ImportError as error:
        raise MissingExtraError(f"the environment gymnasium ({error})", extra="gymnasium") from None
    return gymnasium


def _class_of(spec: Any) -> Any:
    entry = spec.entry_point
    if isinstance(entry, str):
        from gymnasium.envs.registration import load_env_creator

        return load_env_creator(entry)
    return entry


def _seed_of(row: RequestBody) -> int:
    seed = row.get("seed")
    if isinstance(seed, int) and not isinstance(seed, bool) and seed >= 0:
        return seed
    if seed is not None:
        raise RequestRefused(422, f"seed: must be a whole number of at least 0, not {seed!r}")
    named = row.rollout_id or secrets.token_hex(8)
    return int.from_bytes(hashlib.sha256(named.encode()).digest()[:4], "big")


def _rows(settings: GymnasiumSettings) -> Iterator[dict[str, Any]]:
    for position in range(settings.size):
        env_id = settings.env_ids[position % len(settings.env_ids)]
        rules = RULES.get(env_id, f"You play {env_id}. Say each move as <action>...</action>.")
        yield {
            "responses_create_params": {"input": [{"role": "system", "content": rules}]},
            "env_id": env_id,
            "seed": settings.seed + position,
        }
