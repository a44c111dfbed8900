"""The scripted model as a NeMo Gym model server: the n-th call of a conversation gets the n-th reply."""

from __future__ import annotations

import itertools
from time import time
from typing import Any

from fastapi import Body
from nemo_gym.base_responses_api_model import BaseResponsesAPIModelConfig, SimpleResponsesAPIModel
from nemo_gym.openai_utils import NeMoGymResponse, NeMoGymResponseCreateParamsNonStreaming

USAGE = {
    "input_tokens": 20,
    "input_tokens_details": {"cached_tokens": 0},
    "output_tokens": 10,
    "output_tokens_details": {"reasoning_tokens": 0},
    "total_tokens": 30,
}


BODY = Body()


class ScriptedModelConfig(BaseResponsesAPIModelConfig):
    replies: list[list[dict[str, Any]]]


class ScriptedModel(SimpleResponsesAPIModel):
    ray_enabled = False
    config: ScriptedModelConfig

    def model_post_init(self, context):
        self._numbers = itertools.count(1)
        return super().model_post_init(context)

    async def responses(self, body: NeMoGymResponseCreateParamsNonStreaming = BODY) -> NeMoGymResponse:
        items = [] if isinstance(body.input, str) else body.input
        turn = sum(getattr(item, "type", None) == "function_call_output" for item in items)
        return NeMoGymResponse(
            id=f"resp_{next(self._numbers)}",
            created_at=time(),
            model="scripted",
            object="response",
            output=self.config.replies[turn],
            tool_choice="auto",
            tools=body.tools or [],
            parallel_tool_calls=True,
            usage=USAGE,
        )

    async def chat_completions(self, body=BODY):
        raise NotImplementedError


if __name__ == "__main__":
    ScriptedModel.run_webserver()
