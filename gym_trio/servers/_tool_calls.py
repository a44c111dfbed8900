"""One call of an environment's tool, and what its answer must be."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import orjson
import trio

from ..errors import FailureKind, RolloutFailure, Stage
from ._body import Reply, encode_default
from ._tools import Tool

if TYPE_CHECKING:
    from ._resources import ResourcesServer

__all__ = ["call_tool"]


async def call_tool(server: ResourcesServer, tool: Tool, session: Any, arguments: Mapping[str, Any]) -> Reply:
    """Run ``tool`` with checked ``arguments`` in ``session``: a plain function in a thread, an async one here.

    **Cancellation**: passes through; a thread is left to end by itself.

    **Errors**: what the tool raises; `RolloutFailure` (stage ``agent``) when it overruns ``tool_timeout_seconds``, or
    returns what JSON cannot carry: NaN, infinity, an object without a form.
    """
    seconds = server.limits.tool_timeout_seconds
    with trio.move_on_after(seconds):
        if tool.is_async:
            return Reply(_encoded(server, tool, await tool.method(server, session, **arguments)))
        call = functools.partial(tool.method, server, session, **arguments)
        found = await trio.to_thread.run_sync(call, abandon_on_cancel=True, limiter=server.tool_threads)
        return Reply(_encoded(server, tool, found))
    raise RolloutFailure(
        FailureKind.AGENT_TIMEOUT,
        f"{server.name}: the tool {tool.name} took over {seconds:g} s (tool_timeout_seconds)",
        stage=Stage.AGENT,
    )


def _encoded(server: ResourcesServer, tool: Tool, found: Any) -> bytes:
    try:
        encoded = orjson.dumps(found, option=orjson.OPT_NON_STR_KEYS, default=encode_default)
    except TypeError as error:
        raise _unfit(server, tool, str(error)) from None
    # The encoder writes numbers that JSON lacks as null: only then is it worth a look.
    if b"null" in encoded and _has_no_number(found):
        raise _unfit(server, tool, "NaN or infinity is no JSON")
    return encoded


def _has_no_number(value: Any) -> bool:
    if isinstance(value, float):
        return not math.isfinite(value)
    if isinstance(value, Mapping):
        return any(map(_has_no_number, value.values()))
    return isinstance(value, list | tuple) and any(map(_has_no_number, value))


def _unfit(server: ResourcesServer, tool: Tool, why: str) -> RolloutFailure:
    return RolloutFailure(
        FailureKind.AGENT_RUN_ERROR,
        f"{server.name}: what the tool {tool.name} returned cannot be written: {why}",
        stage=Stage.AGENT,
        terminal=True,
    )
