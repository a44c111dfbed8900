"""Recorded and generated conversations."""

from __future__ import annotations

import json
import pathlib
import random
from typing import Any

import pytest

RECORDED = pathlib.Path(__file__).parents[4] / "shared" / "data" / "recorded"


@pytest.fixture(scope="session")
def recorded() -> list[dict[str, Any]]:
    """Rows with responses of real models; empty where the folder is not on this machine."""
    return [json.loads(line) for path in sorted(RECORDED.glob("*.jsonl")) for line in path.read_text().splitlines()]


class Conversations:
    """Seeded random requests of each form, using everything that the other forms can carry."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self._calls = 0

    def text(self) -> str:
        words = ["one", "zwei", "三", '"q"', "\\", "{brace}", "line\nbreak", "é", "<tag>", "🙂"]
        return " ".join(self.random.choices(words, k=self.random.randint(1, 6)))

    def chance(self, share: float = 0.5) -> bool:
        return self.random.random() < share

    def arguments(self) -> str:
        return json.dumps(
            {"city": self.text(), "n": self.random.randint(-9, 9)}, separators=(",", ":"), ensure_ascii=False
        )

    def call_id(self) -> str:
        self._calls += 1
        return f"call_{self._calls}"

    def picture(self) -> str:
        return self.random.choice(["https://pictures.example/a.png", "data:image/png;base64,iVBORw0KGgo="])

    # Chat Completions

    def chat_request(self) -> dict[str, Any]:
        request: dict[str, Any] = {"model": "m", "messages": self._chat_messages()}
        choices = {
            "temperature": 0.3,
            "top_p": 0.9,
            "max_completion_tokens": 77,
            "user": "u",
            "reasoning_effort": "low",
            "verbosity": "high",
            "stop": ["END"],
            "seed": 5,
            "presence_penalty": 0.5,
            "response_format": {
                "type": "json_schema",
                "json_schema": {"name": "answer", "schema": {"type": "object"}, "strict": True},
            },
        }
        request |= {name: value for name, value in choices.items() if self.chance(0.3)}
        if self.chance():
            request["logprobs"], request["top_logprobs"] = True, 2
        if self.chance():
            request["tools"] = [
                {"type": "function", "function": {"name": f"f{n}", "parameters": {"type": "object"}, "strict": False}}
                for n in range(self.random.randint(1, 3))
            ]
            request["parallel_tool_calls"] = self.chance()
            named = {"type": "function", "function": {"name": "f0"}}
            allowed = {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [named]}}
            request["tool_choice"] = self.random.choice(["auto", "none", "required", named, allowed])
        return request

    def _chat_messages(self) -> list[dict[str, Any]]:
        messages: list[dict[str, Any]] = []
        if self.chance():
            messages.append({"role": self.random.choice(["system", "developer"]), "content": self.text()})
        for _ in range(self.random.randint(1, 4)):
            messages.append({"role": "user", "content": self._chat_content()})
            messages += self._chat_turn()
        messages.append({"role": "user", "content": self.text()})
        return messages

    def _chat_content(self) -> Any:
        if self.chance():
            return self.text()
        image = {"type": "image_url", "image_url": {"url": self.picture(), "detail": "low"}}
        audio = {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}}
        file = {"type": "file", "file": {"file_data": "data:application/pdf;base64,JVBE", "filename": "a.pdf"}}
        return [{"type": "text", "text": self.text()}, self.random.choice([image, audio, file])]

    def _chat_turn(self) -> list[dict[str, Any]]:
        message: dict[str, Any] = {"role": "assistant", "content": self.text()}
        if self.chance():
            message["reasoning_content"] = self.text()
        results = []
        if self.chance():
            if self.chance():
                message["content"] = None
            message["tool_calls"] = []
            for _ in range(self.random.randint(1, 3)):
                call_id = self.call_id()
                function = {"name": "f0", "arguments": self.arguments()}
                message["tool_calls"].append({"id": call_id, "type": "function", "function": function})
                results.append({"role": "tool", "tool_call_id": call_id, "content": self.text()})
        if self.chance(0.3):
            message |= {
                "prompt_token_ids": [1, 2],
                "generation_token_ids": [3],
                "generation_log_probs": [-0.5],
            }
        return [message, *results]

    # Messages

    def messages_request(self) -> dict[str, Any]:
        request: dict[str, Any] = {"model": "m", "max_tokens": 99, "messages": self._messages()}
        choices = {
            "system": self.text(),
            "temperature": 0.3,
            "top_p": 0.9,
            "top_k": 4,
            "stop_sequences": ["END"],
            "metadata": {"user_id": "u"},
            "output_config": {"effort": "medium", "format": {"type": "json_schema", "schema": {"type": "object"}}},
        }
        request |= {name: value for name, value in choices.items() if self.chance(0.3)}
        if self.chance():
            request["tools"] = [{"name": "f0", "description": "d", "input_schema": {"type": "object"}}]
            request["tool_choice"] = self.random.choice(
                [
                    {"type": "auto"},
                    {"type": "any"},
                    {"type": "none"},
                    {"type": "tool", "name": "f0"},
                    {"type": "auto", "disable_parallel_tool_use": True},
                ]
            )
        return request

    def _messages(self) -> list[dict[str, Any]]:
        messages: list[dict[str, Any]] = [{"role": "user", "content": self.text()}]
        for _ in range(self.random.randint(0, 3)):
            turn, answer = self._messages_turn()
            messages += [{"role": "assistant", "content": turn}, {"role": "user", "content": answer}]
        return messages

    def _messages_turn(self) -> tuple[Any, Any]:
        image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}}
        linked = {"type": "image", "source": {"type": "url", "url": "https://pictures.example/a.png"}}
        paper = {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "déjà"}}
        pdf = {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "JVBE"}}
        if self.chance():
            return self.text(), [{"type": "text", "text": self.text()}, self.random.choice([image, linked, paper, pdf])]
        turn: list[dict[str, Any]] = []
        if self.chance():
            turn.append({"type": "thinking", "thinking": self.text(), "signature": "sealed"})
        if self.chance(0.3):
            turn.append({"type": "redacted_thinking", "data": "hidden"})
        turn.append({"type": "text", "text": self.text()})
        results: list[dict[str, Any]] = []
        for _ in range(self.random.randint(1, 3)):
            call_id = self.call_id()
            turn.append({"type": "tool_use", "id": call_id, "name": "f0", "input": json.loads(self.arguments())})
            content: Any = self.text() if self.chance() else [{"type": "text", "text": self.text()}, image]
            results.append({"type": "tool_result", "tool_use_id": call_id, "content": content})
        if self.chance():
            results.append({"type": "text", "text": self.text()})
        return turn, results

    # Responses

    def response(self) -> dict[str, Any]:
        """A finished Responses object."""
        output: list[dict[str, Any]] = []
        if self.chance():
            thought = [{"type": "reasoning_text", "text": self.text()}]
            output.append({"id": "rs_1", "type": "reasoning", "summary": [], "content": thought})
        calls = self.random.choice([0, 0, 1, 3])
        if self.chance() or not calls:
            part = {"type": "output_text", "text": self.text(), "annotations": [], "logprobs": []}
            output.append(
                {"id": "msg_1", "type": "message", "role": "assistant", "status": "completed", "content": [part]}
            )
        output += [
            {
                "id": f"fc_{n}",
                "type": "function_call",
                "status": "completed",
                "call_id": self.call_id(),
                "name": "f0",
                "arguments": self.arguments(),
            }
            for n in range(calls)
        ]
        cut = self.chance(0.2)
        return {
            "id": "resp_1",
            "object": "response",
            "created_at": 1790000000.0,
            "status": "incomplete" if cut else "completed",
            "error": None,
            "incomplete_details": {"reason": "max_output_tokens"} if cut else None,
            "model": "m",
            "output": output,
            "parallel_tool_calls": True,
            "tool_choice": "auto",
            "tools": [],
            "usage": {
                "input_tokens": 11,
                "input_tokens_details": {"cached_tokens": 4},
                "output_tokens": 7,
                "output_tokens_details": {"reasoning_tokens": 0},
                "total_tokens": 18,
            },
        }


@pytest.fixture(params=range(20))
def conversations(request: pytest.FixtureRequest) -> Conversations:
    """A source of random conversations; the seed is in the test's name."""
    return Conversations(request.param)
