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
    """The work done, and a digest of what was asked, answered and scored: equal whoever did it and by whichever way."""

    def __init__(self):
        self.work = {"rollouts": 0, "reward": 0.0, "model_calls": 0, "tool_calls": 0, "tool_outputs": 0, "answers": 0}
        self._before = self._last = 0
        self._digest = Digest()

    def after_warming(self, result):
        """The model numbers its answers: those of before are not counted."""
        self._before = max(self._before, _number(result))

    def add(self, result):
        response = result["response"]
        kinds = [item["type"] for item in response["output"]]
        self.work["rollouts"] += 1
        self.work["reward"] += result["reward"]
        self.work["tool_calls"] += kinds.count("function_call")
        self.work["tool_outputs"] += kinds.count("function_call_output")
        self.work["answers"] += kinds.count("message")
        self._last = max(self._last, _number(result))
        asked = [(item["role"], item["content"]) for item in result["responses_create_params"]["input"]]
        tools = [(tool["name"], tool["parameters"]) for tool in response["tools"]]
        told = [_essence(item) for item in response["output"]]
        self._digest.add(json.dumps([asked, tools, told, result["reward"]], sort_keys=True).encode())

    def finished(self):
        return {**self.work, "model_calls": self._last - self._before, "results": str(self._digest)}


def _number(result):
    return int(result["response"]["id"].rpartition("_")[2])


def _essence(item):
    """Without the fields of the Responses format that one side leaves out and the other writes as null."""
    if item["type"] == "function_call":
        return item["call_id"], item["name"], item["arguments"]
    if item["type"] == "function_call_output":
        return item["call_id"], item["output"]
    return item["role"], [part["text"] for part in item["content"]]
