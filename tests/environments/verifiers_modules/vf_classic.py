"""Environments of the package's older kind, in one group, their datasets made here."""

from __future__ import annotations

from typing import Any

import verifiers as vf
from datasets import Dataset


def right(completion: Any, answer: str) -> float:
    return float(answer in str(completion[-1]["content"]))


async def short(completion: Any) -> float:
    return float(len(str(completion[-1]["content"])) < 20)


def broken(completion: Any) -> float:
    raise ZeroDivisionError("the rubric is broken")


async def lookup(city: str) -> str:
    """The weather in a city."""
    return f"sunny in {city}"


class Guessing(vf.MultiTurnEnv):
    """Answers with hints, which it counts in the rollout's state."""

    async def setup_state(self, state: Any, **kwargs: Any) -> Any:
        state["hints"] = 0
        return state

    @vf.stop
    async def guessed(self, state: Any, **kwargs: Any) -> bool:
        return any("lion" in str(step["completion"]) for step in state["trajectory"])

    async def env_response(self, messages: Any, state: Any, **kwargs: Any) -> Any:
        state["hints"] += 1
        return [{"role": "user", "content": f"hint {state['hints']}: it roars"}]


def dataset(*examples: tuple[str, str]) -> Dataset:
    return Dataset.from_list([{"question": question, "answer": answer} for question, answer in examples])


def load_environment(system_prompt: str) -> vf.Environment:
    def rubric() -> vf.Rubric:
        return vf.Rubric(funcs=[right, short], weights=[1.0, 0.5])

    sums = dataset(("1 + 1?", "2"), ("2 + 2?", "4"))
    single = vf.SingleTurnEnv(dataset=sums, rubric=rubric(), system_prompt=system_prompt)
    multi = Guessing(dataset=dataset(("Which animal?", "lion")), rubric=rubric(), max_turns=4)
    tool = vf.ToolEnv(dataset=dataset(("Weather in Oslo?", "sunny in Oslo")), rubric=rubric(), tools=[lookup])
    failing = vf.SingleTurnEnv(dataset=dataset(("3 + 3?", "6")), rubric=vf.Rubric(funcs=[right, broken]))
    return vf.EnvGroup([single, multi, tool, failing], env_names=["single", "multi", "tool", "failing"])
