"""`ScriptedModel`: the scripted model server, for tests, with the calls it has received."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ..models.scripted_model import ScriptedModelServer
from ..servers import ModelRequest

__all__ = ["ScriptedModel"]


class ScriptedModel(ScriptedModelServer):
    """A model server that gives the n-th call of each rollout ``replies[n]``, a list of Responses output items.

    A reply may also be a string: one assistant message. ``calls`` has every request that came, in order, as the client
    wrote it (a dict with ``rollout_id`` and ``headers``). `app` is the ASGI application.
    """

    def __init__(
        self, replies: Iterable[Iterable[dict[str, Any]] | str], *, name: str = "policy_model", **settings: Any
    ) -> None:
        script = [
            [{"role": "assistant", "content": reply}] if isinstance(reply, str) else list(reply) for reply in replies
        ]
        super().__init__(name=name, config={"replies": script, **settings})
        self.calls: list[ModelRequest] = []

    async def answer(self, request: ModelRequest) -> Mapping[str, Any]:
        """The whole answer to ``request`` in its own form."""
        self.calls.append(request)
        return await super().answer(request)
