"""The servers: base classes and routes.

====================  ========================================================================
`Server`              name, settings, client, ASGI app and lifetime; what all the others share
`AgentServer`         ``/run``: one rollout, seed → responses → verify → close
`ToolCaller`          an agent's tool calls, to its environment and back
`EnvironmentLink`     an agent's session at its environment, which it always closes
`tool_loop`           ask, carry out the calls, ask again, until an answer without a call
`bounded`             a call of an agent, cut where there is a bound
`ResourcesServer`     an environment: tools, per-session state, ``/verify``
`GymnasiumServer`     an environment that is stepped: ``/reset`` and ``/step``
`EnvironmentServer`   episodes: seeds an environment and an agent, and always closes both
`LegacyAgentServer`   stands for an agent that knows no episodes
`open_mcp`            another server's tools over MCP, for agents
`ModelServer`         a model behind the three APIs; `forms` converts between them
`Judge`               asks a model for a verdict; without one the sample is masked
`ModelCall`           the record of one model call, for a `ModelCallRecorder`
`HeadServer`          which servers a fleet has, and whether all are ready
`tool`                marks a method of an environment as a tool of the model
`RequestBody`         what a handler gets: the JSON object, readable as attributes too
`Session`             the default state of an environment's session
`Reply`               what a handler returns when a bare JSON value is not enough
====================  ========================================================================
"""

from __future__ import annotations

from collections.abc import Mapping

from . import _forms as forms
from ._agent import AgentServer
from ._agent_tools import RemoteTool, ToolCaller
from ._body import JsonEndpoint, Reply, RequestBody, read_body, send_json
from ._bounded import bounded
from ._environment import EnvironmentServer, Episode, LegacyAgentServer
from ._environment_link import EnvironmentLink
from ._failures import failure_from_wire, failure_of, failure_to_wire
from ._gymnasium import GymnasiumServer, ResetAnswer, StepAnswer, step_response
from ._head import HeadServer, with_addresses
from ._judge import Judge, Judgement
from ._mcp_client import McpTools, mcp_accesses_of, open_mcp, open_mcp_accesses
from ._model import ModelServer
from ._model_calls import Attempt, CallOutcome, ModelCall, ModelCallRecorder, ModelRequest
from ._resources import ResourcesServer, Session
from ._response import add_usage, function_calls, input_items, message_texts, output_text, reply_items
from ._server import COMMON_KEYS, Server
from ._tool_loop import LoopEnd, open_calls, tool_loop
from ._tools import Tool, tool, tools_of
from ._verdict import verify_response

# The implementations of ``environment_servers`` blocks, by NeMo Gym's names.
ENVIRONMENT_SERVERS: Mapping[str, str] = {
    "legacy_agent": "gym_trio.servers:LegacyAgentServer",
    "single_agent": "gym_trio.servers:EnvironmentServer",
    "single_agent_turn": "gym_trio.servers:EnvironmentServer",
}

__all__ = [
    "COMMON_KEYS",
    "ENVIRONMENT_SERVERS",
    "AgentServer",
    "Attempt",
    "CallOutcome",
    "EnvironmentLink",
    "EnvironmentServer",
    "Episode",
    "GymnasiumServer",
    "HeadServer",
    "JsonEndpoint",
    "Judge",
    "Judgement",
    "LegacyAgentServer",
    "LoopEnd",
    "McpTools",
    "ModelCall",
    "ModelCallRecorder",
    "ModelRequest",
    "ModelServer",
    "RemoteTool",
    "Reply",
    "RequestBody",
    "ResetAnswer",
    "ResourcesServer",
    "Server",
    "Session",
    "StepAnswer",
    "Tool",
    "ToolCaller",
    "add_usage",
    "bounded",
    "failure_from_wire",
    "failure_of",
    "failure_to_wire",
    "forms",
    "function_calls",
    "input_items",
    "mcp_accesses_of",
    "message_texts",
    "open_calls",
    "open_mcp",
    "open_mcp_accesses",
    "output_text",
    "read_body",
    "reply_items",
    "send_json",
    "step_response",
    "tool",
    "tool_loop",
    "tools_of",
    "verify_response",
    "with_addresses",
]
