"""Tasksets played by a harness: ``verifiers.v1``."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from typing import Any

from ._frames import as_json
from ._report import AGENT, MODEL, VERIFICATION, RolloutFailed, Unusable, described

__all__ = ["TasksetEnvironment", "load_taskset"]

NO_KEY = "GYM_TRIO_NO_KEY"  # a variable that is not set: the model's address is secret enough


def load_taskset(name: str, arguments: Mapping[str, Any]) -> TasksetEnvironment:
    """The taskset ``name``, in the environment that ``arguments`` configure as ``[env]`` does for the package."""
    import verifiers.v1 as v1

    given = dict(arguments)
    taskset = {**(given.pop("taskset", None) or {}), "id": name}
    return TasksetEnvironment(v1.load_environment(v1.resolve_env_config({**given, "taskset": taskset})), name)


class TasksetEnvironment:
    """One taskset with its harness. An episode with one trace has that trace's reward, one with several their mean."""

    def __init__(self, env: Any, name: str) -> None:
        self._env = env
        self._name = name
        self._task_type = type(env.taskset).task_type()

    def rows(self, split: str | None, limit: int | None) -> Iterator[dict[str, Any]]:
        if split is not None:
            raise Unusable(f"the environment {self._name!r}: a taskset has no splits (split)")
        if limit is None and not self._env.taskset.bounded:
            raise Unusable(f"the environment {self._name!r}: its taskset never ends: give num_examples")
        tasks = iter(self._env.taskset)
        try:
            for task in itertools.islice(tasks, limit):
                yield self._row(task)
        except Unusable:
            raise
        except Exception as error:
            raise Unusable(f"the environment {self._name!r}: its taskset raised {described(error)}") from error

    def _row(self, task: Any) -> dict[str, Any]:
        data = task.data
        messages = [{"role": "system", "content": data.system_prompt}] if data.system_prompt else []
        if isinstance(data.prompt, str):
            messages.append({"role": "user", "content": data.prompt})
        else:
            messages += [message.model_dump(mode="json", exclude_none=True) for message in data.prompt or ()]
        if not messages:
            raise Unusable(f"the environment {self._name!r}: task {data.idx} of its taskset has no prompt")
        return {"messages": as_json(messages), "example": as_json(data.model_dump(mode="json", exclude_none=True))}

    @contextlib.asynccontextmanager
    async def opened(self) -> AsyncIterator[None]:
        async with self._env.serving():
            yield

    async def roll(
        self, example: dict[str, Any], url: str, sampling: dict[str, Any], enter: Callable[[str], None]
    ) -> dict[str, Any]:
        import verifiers.v1 as v1

        data = self._task_type.data_type().model_validate(example)
        task = self._task_type(data, self._env.config.taskset.task)
        client = v1.EvalClientConfig(base_url=url, api_key_var=NO_KEY)
        context = v1.ModelContext(model=MODEL, client=client, sampling=v1.Sampling(**sampling))
        (slot,) = self._env.slots(task)
        return _result(await self._env.run_slot(slot, context))


def _result(episode: Any) -> dict[str, Any]:
    if not episode.ok:
        raise _failed(episode)
    played = [trace for trace in episode.traces if trace.agent.trainable] or episode.traces
    metrics: dict[str, float] = {}
    for trace in played:
        prefix = f"{trace.agent.name}/" if len(played) > 1 else ""
        rewards = {name: found.value for name, found in trace.rewards.items() if found is not None}
        known = {name: value for name, value in trace.metrics.items() if value is not None}
        metrics |= {f"{prefix}{name}": value for name, value in {**known, **rewards}.items()}
    return {
        "reward": sum(trace.reward for trace in played) / len(played),
        "metrics": metrics,
        "truncated": any(trace.is_truncated for trace in played),
        "stop_condition": played[-1].stop_condition,
    }


def _failed(episode: Any) -> RolloutFailed:
    errors = [*episode.errors, *(error for trace in episode.traces for error in trace.errors)]
    if not errors:
        return RolloutFailed("the episode did not complete", stage=AGENT, exception_type="EnvError")
    error = errors[-1]
    scoring = error.type == "TaskError" and "scoring" in error.message
    what = f"{error.type}: {' '.join(error.message.split())}"
    return RolloutFailed(what, stage=VERIFICATION if scoring else AGENT, exception_type=error.type)
