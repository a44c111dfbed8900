"""The three-server tool-call environment as a configuration: one tool call, then an answer; the model is a script."""

from __future__ import annotations

import json

from _side import Digest

REPLIES = [
    [
        {
            "type": "function_call",
            "call_id": "call_1",
            "id": "fc_1",
            "name": "get_weather",
            "arguments": '{"city": "sf"}',
            "status": "completed",
        }
    ],
    [
        {
            "type": "message",
            "id": "msg_1",
            "role": "assistant",
            "status": "completed",
            "content": [{"type": "output_text", "text": "It is cold in sf.", "annotations": []}],
        }
    ],
]
TOOL = {
    "name": "get_weather",
    "type": "function",
    "description": "",
    "strict": True,
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string", "description": ""}},
        "required": ["city"],
        "additionalProperties": False,
    },
}
AGENT = "weather_agent"
CONFIG = {
    "weather": {"resources_servers": {"example_single_tool_call": {"entrypoint": "app.py", "domain": "agent"}}},
    AGENT: {
        "responses_api_agents": {
            "simple_agent": {
                "entrypoint": "app.py",
                "resources_server": {"type": "resources_servers", "name": "weather"},
                "model_server": {"type": "responses_api_models", "name": "policy_model"},
            }
        }
    },
    "policy_model": {"responses_api_models": {"scripted_model": {"entrypoint": "app.py", "replies": REPLIES}}},
}


def rows(count, first=0):
    for number in range(first, first + count):
        yield {
            "responses_create_params": {
                "input": [
                    {"role": "developer", "content": "You are a helpful personal assistant."},
                    {"role": "user", "content": f"what's it like in sf? ({number})"},
                ],
                "tools": [TOOL],
            },
            "agent_ref": {"type": "responses_api_agents", "name": AGENT},
            "_ng_task_index": number,
            "_ng_rollout_index": 0,
        }


class Tally:
    """The work done, and a digest of what was asked, answered and scored: equal whoever did it and by whichever way.

    While the clock runs a result is only taken apart: its strings are kept, which no collection of garbage goes over.
    Counting and comparing them is the benchmark's own work.
    """

    def __init__(self):
        self._before = 0
        self._kept = []
        self._tools = []  # that were offered; nearly always the same

    def after_warming(self, result):
        """The model numbers its answers: those of before are not counted."""
        self._before = max(self._before, _number(result["response"]["id"]))

    def add(self, result):
        response = result["response"]
        if not self._tools or response["tools"] != self._tools[-1]:
            self._tools.append(response["tools"])
        asked = tuple([(item["role"], item["content"]) for item in result["responses_create_params"]["input"]])
        told = tuple([_essence(item) for item in response["output"]])
        self._kept.append((response["id"], result["reward"], len(self._tools) - 1, asked, told))

    def finished(self):
        digest = Digest()
        tools = [[(tool["name"], tool["parameters"]) for tool in offered] for offered in self._tools]
        kinds = []
        for _, reward, offered, asked, told in self._kept:
            kinds += [kind for kind, *_ in told]
            digest.add(json.dumps([asked, tools[offered], told, reward], sort_keys=True).encode())
        return {
            "rollouts": len(self._kept),
            "reward": sum(reward for _, reward, *_ in self._kept),
            "model_calls": max(_number(name) for name, *_ in self._kept) - self._before,
            "tool_calls": kinds.count("function_call"),
            "tool_outputs": kinds.count("function_call_output"),
            "answers": kinds.count("message"),
            "results": str(digest),
        }


def _number(response_id):
    return int(response_id.rpartition("_")[2])


def _essence(item):
    """Without the fields of the Responses format that one side leaves out and the other writes as null."""
    kind = item["type"]
    if kind == "function_call":
        return kind, item["call_id"], item["name"], item["arguments"]
    if kind == "function_call_output":
        return kind, item["call_id"], item["output"]
    return kind, item["role"], *[part["text"] for part in item["content"]]
