"""The three-server tool-call environment as a configuration: one tool call, then an answer; the model is a script."""

from __future__ import annotations

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
    """The work done: rewards, tool calls and answers."""

    def __init__(self):
        self.work = {"rollouts": 0, "reward": 0.0, "tool_calls": 0, "tool_outputs": 0, "answers": 0}

    def add(self, result):
        kinds = [item["type"] for item in result["response"]["output"]]
        self.work["rollouts"] += 1
        self.work["reward"] += result["reward"]
        self.work["tool_calls"] += kinds.count("function_call")
        self.work["tool_outputs"] += kinds.count("function_call_output")
        self.work["answers"] += kinds.count("message")
