"""An environment whose every example says what is to happen in it."""

from __future__ import annotations

import asyncio
import json
import os
import pathlib
import signal
import subprocess
import sys
from typing import Any

QUESTIONS = ("one", "two", "three")
Json = dict[str, Any]


class Rubric:
    has_group_rewards = False

    def __init__(self, funcs: list[Any]) -> None:
        self.funcs = funcs

    async def score_rollout(self, state: Json) -> None:
        state["metrics"] = {}
        for function in self.funcs:
            try:
                found = function(state)
                value = float(await found if asyncio.iscoroutine(found) else found)
            except Exception:  # noqa: BLE001  as the package does
                value = 0.0
            state["metrics"][function.__name__] = value
        state["reward"] = state["metrics"]["right"]

    async def cleanup(self, state: Json) -> None:
        state["clean"] = True


def right(state: Json) -> float:
    if state["does"] == "endless reward":
        return float("inf")
    return float(state["answer"] in state["said"])


async def checked(state: Json) -> float:
    await asyncio.sleep(0)
    if state["does"] == "broken rubric":
        raise ZeroDivisionError("the rubric is broken")
    return 1.0


def process(state: Json) -> float:
    return float(os.getpid())


def temperature(state: Json) -> float:
    return float((state["sampling"] or {}).get("temperature", -1))


async def die(info: Json) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


async def leave(info: Json) -> None:
    os._exit(3)


async def fail(info: Json) -> None:
    raise LookupError("no such room")


async def wait(info: Json) -> None:
    """Until the test says to go on, if ever."""
    write(info, "here")
    while not pathlib.Path(f"{info['path']}.go").exists():  # noqa: ASYNC110, ASYNC240  the test is elsewhere
        await asyncio.sleep(0.01)


async def stay(info: Json) -> None:
    write(info, "here")
    while True:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            continue


async def have_a_child(info: Json) -> None:
    command = [sys.executable, "-c", "import time; time.sleep(3600)"]
    write(info, str(subprocess.Popen(command).pid))  # noqa: ASYNC220  it is to outlive this


async def start_a_program(info: Json) -> None:
    """One that imports this module, by the name of this Python."""
    name = pathlib.Path(sys.executable).name
    program = await asyncio.create_subprocess_exec(name, "-c", "import plain_env, verifiers")
    if await program.wait():
        raise LookupError("the program did not find its modules")


def write(info: Json, text: str) -> None:
    pathlib.Path(info["path"]).write_text(text)


ACTS = {
    "die": die,
    "exit": leave,
    "raise": fail,
    "wait": wait,
    "stay": stay,
    "own child": have_a_child,
    "program": start_a_program,
}


class Environment:
    def __init__(self, examples: list[Json]) -> None:
        self.rubric = Rubric([right, checked, process, temperature])
        self._examples = examples
        self._met = 0
        self._all_met = asyncio.Event()

    def get_eval_dataset(self, n: int = -1) -> list[Json]:
        return self._examples if n < 0 else self._examples[:n]

    def get_dataset(self, n: int = -1) -> list[Json]:
        return [{"prompt": "train", "answer": "train"}]

    async def rollout(self, example: Json, client: Any, model: str, sampling: Any) -> Json:
        info = example.get("info") or {}
        does = info.get("does", "")
        state = {"answer": example.get("answer", ""), "does": does, "sampling": sampling, "said": "", "error": None}
        if does in ACTS:
            await ACTS[does](info)
        if does == "meet":
            await self._meet(info["count"])
        prompt = example["prompt"]
        messages = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else list(prompt)
        try:
            state["said"] = await self._talk(does, client.native, messages, dict(sampling or {}))
        except asyncio.CancelledError:
            write(info, "cancelled")
            raise
        except ConnectionError as error:
            state["error"] = error
        return state

    async def _meet(self, count: int) -> None:
        self._met += 1
        if self._met == count:
            self._all_met.set()
        await self._all_met.wait()

    async def _talk(self, does: str, model: Any, messages: Any, sampling: Json) -> str:
        if does == "stream":
            events = (await model.create(messages=messages, stream=True)).split("\n\n")
            chunks = [json.loads(event[6:]) for event in events if event.startswith("data: {")]
            return "".join(chunk["choices"][0]["delta"].get("content") or "" for chunk in chunks if chunk["choices"])
        said = _said(await model.create(messages=messages, **sampling))
        if does != "two turns":
            return said
        more = [*messages, {"role": "assistant", "content": said}, {"role": "user", "content": "sure?"}]
        return _said(await model.create(messages=more))


def _said(answer: str) -> str:
    return str(json.loads(answer)["choices"][0]["message"]["content"])


def load_environment(fails: str = "", examples: list[Json] | None = None) -> Any:
    if fails == "raise":
        raise RuntimeError("no such data")
    if fails == "return":
        return object()
    if fails == "die":
        os._exit(7)
    made = Environment(examples or [{"prompt": q, "answer": q, "info": {"of": q}} for q in QUESTIONS])
    if fails == "group":
        made.rubric.has_group_rewards = True
    return made
