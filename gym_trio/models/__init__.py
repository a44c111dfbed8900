"""The built-in model servers, one file each.

==================  =====================================================================
``scripted_model``  answers from a script
``local_model``     a small language model on this machine, in a child process (also ``local``)
``openai_model``    a Responses endpoint, or an OpenAI-compatible one whose API is found out
``vllm_model``      Chat Completions endpoints: vLLM and all that speak its API
==================  =====================================================================

Each serves ``/v1/responses``, ``/v1/chat/completions`` and ``/v1/messages``, plain and under ``/ng-rollout/<id>/``,
whole and streamed. A client that speaks its back end's own API is passed through; the others are converted. What a
format forces, and nothing else, differs on the way:

=====================  ===============================================================================================
into Chat Completions  reasoning goes into ``reasoning_content`` (or ``<think>``), sealed reasoning is left out; what
                       stands between a call and its result joins the call's message; pictures in a tool result follow
                       in a user message; an assistant's text parts become one text; item ids, summaries of reasoning,
                       ``truncation``, ``max_tool_calls`` and ``include`` are left out
into Responses         several choices (``n``) are refused; ``stop``, ``seed``, ``top_k``, penalties, ``logit_bias``,
                       ``prediction``, ``modalities`` and ``audio`` are left out, with one warning for each; names of
                       users, ``is_error`` of tool results, ``cache_control`` and citations are left out; a thinking
                       budget becomes an effort; an empty assistant message disappears
into Messages          a bound is required, 4,096 tokens where there is none; instructions given later become user
                       messages; what one side says in a row is one message; ``minimal`` effort is ``low``; names of
                       schemas, log probabilities, audio and ``json_object`` are left out; a custom tool takes an
                       object with ``input``; arguments that are no object stand under ``arguments``; missing usage is
                       zero
refused everywhere     items, parts and tools that only one provider's own servers can act on (web search, computer
                       use, files by id or URL where the form has none), and conversations that a provider keeps
in streams             ``<think>`` is found by its opening tag alone; of parallel calls a Messages client gets one
                       after the other; a Messages stream counts its input tokens at its end
=====================  ===============================================================================================

Exact tokens (``prompt_token_ids``, ``generation_token_ids``, ``generation_log_probs``) stand on the last output item of
a call, on its chat message, or on its message of the Messages form, in each direction. Where the back end does not
give every token and its log probability, none are given.
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
