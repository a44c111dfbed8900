"""A taskset with a harness of its own, which calls the model from inside the environment's process."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import verifiers.v1 as vf

__all__ = ["Asking", "Sums"]


class Sum(vf.TaskData):
    answer: str = ""


class SumTask(vf.Task[Sum]):
    @vf.reward(weight=1.0)
    async def right(self, trace: vf.Trace) -> float:
        if not self.data.answer:
            raise ZeroDivisionError("the rubric is broken")
        return float(self.data.answer in str(trace.last_reply))

    @vf.metric
    async def length(self, trace: vf.Trace) -> float:
        return float(len(str(trace.last_reply)))


class SumsConfig(vf.TasksetConfig):
    system: str = ""


class Sums(vf.Taskset[SumTask, SumsConfig]):
    def load(self) -> Iterator[SumTask]:
        for prompt, answer in (("1 + 1?", "2"), ("2 + 2?", "4"), ("3 + 3?", "")):
            yield SumTask(Sum(prompt=prompt, answer=answer, system_prompt=self.config.system), self.config.task)


class Asking(vf.Harness[vf.HarnessConfig]):
    """Asks, and asks again whether that is sure; the first reply is the one that is scored."""

    APPENDS_SYSTEM_PROMPT = True
    NEEDS_CONTAINER = False
    EXECUTES_CODE = False

    async def launch(self, ctx: Any, trace: Any, runtime: Any, endpoint: str, secret: str, *rest: Any) -> Any:
        messages = [{"role": "user", "content": trace.task.data.prompt}]
        headers = {"authorization": f"Bearer {secret}"}
        async with httpx.AsyncClient(timeout=None, headers=headers) as client:
            answer = await client.post(f"{endpoint}/chat/completions", json={"model": ctx.model, "messages": messages})
        return vf.ProgramResult(exit_code=int(answer.is_error), stdout="", stderr=answer.text)
