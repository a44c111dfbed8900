"""The built-in model servers, one file each.

==================  =====================================================================
``scripted_model``  answers from a script
``local_model``     a small language model on this machine, in a child process (also ``local``)
``openai_model``    a Responses endpoint, or an OpenAI-compatible one whose API is found out
``vllm_model``      Chat Completions endpoints: vLLM and all that speak its API
==================  =====================================================================
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

__all__ = ["IMPLEMENTATIONS"]

# Implementation name in a configuration → where its class is; imported when a block names it.
IMPLEMENTATIONS: Mapping[str, str] = MappingProxyType(
    {
        "local_model": "gym_trio.models.local_model:LocalModel",
        "local": "gym_trio.models.local_model:LocalModel",
        "openai_model": "gym_trio.models.openai_model:OpenAIModel",
        "scripted_model": "gym_trio.models.scripted_model:ScriptedModelServer",
        "vllm_model": "gym_trio.models.vllm_model:VLLMModel",
    }
)
