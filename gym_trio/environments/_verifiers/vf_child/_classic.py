"""Environments that a ``load_environment`` makes: `SingleTurnEnv`, `MultiTurnEnv`, `ToolEnv` and their kin."""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import AsyncIterator, Callable, Iterator
from contextvars import ContextVar
from typing import Any

from ._frames import as_json
from ._report import AGENT, MODEL, VERIFICATION, RolloutFailed, Unusable, described

__all__ = ["ClassicEnvironment"]

# What reward functions raised in the rollout whose task this is. The package itself makes 0.0 of it.
_RAISED: ContextVar[list[tuple[str, Exception]] | None] = ContextVar("raised", default=None)


class ClassicEnvironment:
    """One environment with a dataset and a rubric.

    Its rubric's functions are wrapped, so that one that raises fails its rollout: the package would take it for a
    reward of zero.
    """

    def __init__(self, env: Any, name: str) -> None:
        self._env = env
        self._name = name
        for rubric in _rubrics(env):
            if getattr(rubric, "has_group_rewards", False):
                raise Unusable(
                    f"the environment {name!r}: its rubric compares the rollouts of a group with each other, "
                    "and here each rollout is scored by itself"
                )
            rubric.funcs = [_watched(function) for function in rubric.funcs]

    def rows(self, split: str | None, limit: int | None) -> Iterator[dict[str, Any]]:
        get = self._env.get_dataset if split == "train" else self._env.get_eval_dataset
        try:
            dataset = get(n=-1 if limit is None else limit)
        except Exception as error:
            raise Unusable(f"the environment {self._name!r}: its dataset: {described(error)}") from error
        for position, found in enumerate(dataset):
            example = as_json(dict(found))
            prompt = example.get("prompt")
            if not prompt or not isinstance(prompt, str | list):
                raise Unusable(f"the environment {self._name!r}: example {position} of its dataset has no prompt")
            messages = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt
            yield {"messages": messages, "example": example}

    @contextlib.asynccontextmanager
    async def opened(self) -> AsyncIterator[None]:
        yield  # these tear themselves down when the process ends

    async def roll(
        self, example: dict[str, Any], url: str, sampling: dict[str, Any], enter: Callable[[str], None]
    ) -> dict[str, Any]:
        raised: list[tuple[str, Exception]] = []
        _RAISED.set(raised)
        async with _client(url) as client:
            state = await self._env.rollout(example, client, MODEL, sampling)
            try:
                error = state.get("error")
                if error is not None:
                    known = error if isinstance(error, BaseException) else RuntimeError(str(error))
                    raise RolloutFailed(described(known), stage=AGENT, exception_type=type(known).__name__)
                enter(VERIFICATION)
                await self._env.rubric.score_rollout(state)
            finally:
                await self._env.rubric.cleanup(state)
        for name, error in raised:
            what = f"the reward function {name} raised {described(error)}"
            raise RolloutFailed(what, stage=VERIFICATION, exception_type=type(error).__name__)
        return {
            "reward": state.get("reward"),
            "metrics": dict(state.get("metrics") or {}),
            "truncated": bool(state.get("is_truncated")),
            "stop_condition": state.get("stop_condition"),
        }


@contextlib.asynccontextmanager
async def _client(url: str) -> AsyncIterator[Any]:
    """The package's chat client of the rollout's model. Retries and bounds are the model server's."""
    from openai import AsyncOpenAI
    from verifiers.clients import OpenAIChatCompletionsClient

    async with AsyncOpenAI(base_url=url, api_key="none", max_retries=0, timeout=None) as native:
        yield OpenAIChatCompletionsClient(native)


def _rubrics(env: Any) -> Iterator[Any]:
    """Every rubric of ``env``: those that its own is a group of, and of the environments that it is a group of."""
    waiting = [env.rubric]
    while waiting:
        rubric = waiting.pop()
        yield rubric
        waiting += getattr(rubric, "rubrics", ())
    for inner in getattr(env, "envs", ()):
        yield from _rubrics(inner)


def _watched(function: Any) -> Any:
    """``function``, with the signature that the package looks at, noting what it raises."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        with _noting(function):
            found = function(*args, **kwargs)
        return settle(found) if inspect.isawaitable(found) else found

    async def settle(found: Any) -> Any:
        with _noting(function):
            return await found

    return call


@contextlib.contextmanager
def _noting(function: Any) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        raised = _RAISED.get()
        if raised is not None:
            raised.append((getattr(function, "__name__", repr(function)), error))
        raise
