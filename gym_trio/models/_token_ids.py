"""The exact tokens of a chat completion, wherever a back end puts them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..servers import ModelRequest
from ._provider import Provider

__all__ = ["REQUEST_KEYS", "TokenSource", "generation_of", "prompt_of"]

# What makes a back end give the ids: vLLM's own keys, then the one that all have.
REQUEST_KEYS: Mapping[str, Any] = {"return_token_ids": True, "return_tokens_as_token_ids": True, "logprobs": True}


class TokenSource:
    """Finds what an answer itself does not tell of its tokens. This one is vLLM's."""

    def __init__(self, provider: Provider) -> None:
        self._provider = provider

    async def prompt(self, request: ModelRequest, chat: Mapping[str, Any]) -> list[int] | None:
        """The tokens of a chat request's prompt."""
        names = ("model", "messages", "tools", "chat_template_kwargs")
        return await self._tokenize(request, {name: chat[name] for name in names if chat.get(name) is not None})

    async def _tokenize(self, request: ModelRequest, body: Mapping[str, Any]) -> list[int] | None:
        answer = await self._provider.call(request, "../tokenize", body, has_slot=True)
        tokens = answer.get("tokens")
        return tokens if isinstance(tokens, list) else None

    async def ending(self, request: ModelRequest, tokens: Sequence[int]) -> tuple[int, float] | None:
        """The token without text that came after ``tokens`` (prompt and generation), and its log probability."""
        return None


def generation_of(entries: Sequence[Mapping[str, Any]], beside: Mapping[str, Any]) -> dict[str, Any] | None:
    """``generation_token_ids`` and ``generation_log_probs``, or ``None`` when they are not all known.

    ``entries`` are the log probabilities, one for each token; ``beside`` is what else may have ids: a choice.
    """
    ready = beside.get("generation_token_ids"), beside.get("generation_log_probs")
    if ready[0] is not None and ready[1] is not None:
        return {"generation_token_ids": ready[0], "generation_log_probs": ready[1]}
    ids = [_id_of(entry) for entry in entries]
    if None in ids:
        ids = list(ready[0] or beside.get("token_ids") or ())
    if len(ids) != len(entries):
        return None
    return {"generation_token_ids": ids, "generation_log_probs": [entry["logprob"] for entry in entries]}


def _id_of(entry: Mapping[str, Any]) -> int | None:
    if isinstance(entry.get("id"), int):
        return int(entry["id"])
    head, _, digits = str(entry.get("token")).partition("token_id:")
    return int(digits) if not head and digits.isdecimal() else None


def prompt_of(*places: Mapping[str, Any]) -> list[int] | None:
    """``prompt_token_ids`` from the first of ``places`` that has them."""
    return next((list(place["prompt_token_ids"]) for place in places if place.get("prompt_token_ids")), None)
