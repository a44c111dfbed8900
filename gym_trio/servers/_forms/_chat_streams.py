"""Chat completion chunks ↔ Responses events."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ._chat_answers import (
    _INCOMPLETE,
    call_to_chat,
    finish_reason_of,
    id_in_form,
    responses_to_chat,
    seconds_of,
    usage_from_chat,
)
from ._chat_turns import TOKEN_KEYS, arguments_text
from ._events import FINAL_EVENTS, ResponseBuilder
from ._parts import JSON, pick
from ._sse import DONE, StreamPiece, sse
from ._thinking import ThinkingSplitter

__all__ = ["ChatChunkReader", "ChatWriter"]


class ChatChunkReader:
    """Turns the chunks of a streamed chat completion into Responses events. Reads the first choice."""

    def __init__(
        self, request: Mapping[str, Any], *, split_think_tags: bool = False, keep_logprobs: bool = True
    ) -> None:
        self._keep_logprobs = keep_logprobs
        self.builder = ResponseBuilder(request)
        self.ended = False
        self.tokens: list[JSON] = []  # log probabilities as the back end wrote them, one entry for each token
        self.extras: JSON = {}  # token ids that came beside the text
        self._splitter = ThinkingSplitter() if split_think_tags else None
        self._calls: dict[int, JSON] = {}
        self._reason: str | None = None
        self._usage: JSON | None = None

    @property
    def output_tokens(self) -> int | None:
        """How many tokens the back end says that it generated."""
        return self._usage["output_tokens"] if self._usage is not None else None

    def feed(self, chunk: Mapping[str, Any]) -> list[JSON]:
        """The events that ``chunk`` makes. The final ones come from `finish`: usage may follow the last text."""
        begun = {"id": id_in_form("resp_", chunk.get("id")), **pick(chunk, "model", "service_tier")}
        events = self.builder.begin(**begun, created_at=seconds_of(chunk.get("created")))
        self._usage = usage_from_chat(chunk.get("usage")) or self._usage
        self.extras.update(pick(chunk, "prompt_token_ids"))
        for choice in chunk.get("choices") or ():
            if choice.get("index", 0) == 0:
                events += self._choice(choice)
        return events

    def _choice(self, choice: Mapping[str, Any]) -> list[JSON]:
        delta = choice.get("delta") or {}
        entries = (choice.get("logprobs") or {}).get("content") or []
        self.tokens += entries
        self.extras.update(pick(choice, "prompt_token_ids"))
        if choice.get("token_ids"):
            self.extras.setdefault("generation_token_ids", []).extend(choice["token_ids"])
        events: list[JSON] = []
        reasoning = delta.get("reasoning_content") or delta.get("reasoning")
        if reasoning:
            events += self.builder.reasoning(reasoning)
        if delta.get("content"):
            events += self._content(delta["content"], entries if self._keep_logprobs else [])
        if delta.get("refusal"):
            events += self.builder.refusal(delta["refusal"])
        for position, call in enumerate(delta.get("tool_calls") or ()):
            events += self._call(call, position)
        if choice.get("finish_reason"):
            self._reason, self.ended = choice["finish_reason"], True
        return events

    def _content(self, content: str, entries: list[Any]) -> list[JSON]:
        if self._splitter is None:
            return self.builder.text(content, entries)
        reasoning, text = self._splitter.feed(content)
        events = self.builder.reasoning(reasoning) if reasoning else []
        return [*events, *(self.builder.text(text, entries) if text else ())]

    def _call(self, call: Mapping[str, Any], position: int) -> list[JSON]:
        index = call.get("index", position)
        form = call.get("function") or call.get("custom") or {}
        events: list[JSON] = []
        known = self._calls.get(index)
        # Some servers give no index, or the same to all calls: another id with a name is another call.
        if known is None or (form.get("name") and call.get("id") not in (None, "", known["call_id"])):
            item, events = self.builder.call(call.get("id"), form.get("name") or "", custom=bool(call.get("custom")))
            self._calls[index] = item
        delta = arguments_text(form.get("arguments") or form.get("input") or "")
        return [*events, *(self.builder.arguments(self._calls[index], delta) if delta else ())]

    def finish(self, tokens: JSON | None = None) -> list[JSON]:
        """The events after the last chunk; ``tokens`` is what goes onto the last item."""
        events: list[JSON] = []
        rest = self._splitter.finish() if self._splitter is not None else ("", "")
        if rest[0]:
            events += self.builder.reasoning(rest[0])
        if rest[1]:
            events += self.builder.text(rest[1])
        reason = _INCOMPLETE.get(self._reason or "")
        return [*events, *self.builder.end(incomplete=reason, usage=self._usage, tokens=tokens)]


class ChatWriter:
    """Turns Responses events into the chunks of a streamed chat completion."""

    def __init__(self, request: Mapping[str, Any]) -> None:
        self._with_usage = bool((request.get("stream_options") or {}).get("include_usage"))
        self._base: JSON = {}
        self._calls: dict[str, int] = {}

    def feed(self, event: Mapping[str, Any]) -> StreamPiece:
        kind = event["type"]
        if kind == "response.created":
            return self._begin(event["response"])
        if kind in FINAL_EVENTS:
            return self._end(event["response"])
        if kind == "response.output_item.added":
            return self._added(event["item"])
        text = event.get("delta")
        if not isinstance(text, str) or not text:
            return StreamPiece()
        if kind == "response.output_text.delta":
            logprobs = event.get("logprobs")
            return self._chunk({"content": text}, logprobs={"content": logprobs, "refusal": None} if logprobs else None)
        if kind in ("response.reasoning_text.delta", "response.reasoning_summary_text.delta"):
            return self._chunk({"reasoning_content": text})
        if kind == "response.refusal.delta":
            return self._chunk({"refusal": text})
        if kind == "response.function_call_arguments.delta":
            return self._call_delta(event, {"function": {"arguments": text}})
        if kind == "response.custom_tool_call_input.delta":
            return self._call_delta(event, {"custom": {"input": text}})
        return StreamPiece()

    def _begin(self, response: Mapping[str, Any]) -> StreamPiece:
        self._base = {
            "id": id_in_form("chatcmpl-", response.get("id")),
            "object": "chat.completion.chunk",
            "created": int(seconds_of(response.get("created_at"))),
            "model": response.get("model") or "",
        }
        return self._chunk({"role": "assistant", "content": ""})

    def _added(self, item: Mapping[str, Any]) -> StreamPiece:
        if item.get("type") not in ("function_call", "custom_tool_call"):
            return StreamPiece()
        index = self._calls[item.get("id") or item["call_id"]] = len(self._calls)
        emptied = {**item, "arguments": "", "input": ""}
        call = call_to_chat(emptied)
        if "function" in call:
            call["function"]["arguments"] = ""
        return self._chunk({"tool_calls": [{"index": index, **call}]})

    def _call_delta(self, event: Mapping[str, Any], form: JSON) -> StreamPiece:
        index = self._calls.get(event.get("item_id") or "", len(self._calls) - 1)
        return self._chunk({"tool_calls": [{"index": index, **form}]})

    def _end(self, response: Mapping[str, Any]) -> StreamPiece:
        whole = responses_to_chat(response)
        reason = finish_reason_of(response, has_calls=bool(self._calls))
        tokens = pick(whole["choices"][0]["message"], *TOKEN_KEYS)
        content = self._chunk(tokens, finish_reason=reason).content
        if self._with_usage:
            content += sse({**self._base, "choices": [], "usage": whole.get("usage")})
        return StreamPiece(content + DONE, whole)

    def _chunk(self, delta: JSON, *, finish_reason: str | None = None, logprobs: JSON | None = None) -> StreamPiece:
        choice = {"index": 0, "delta": delta, "finish_reason": finish_reason, "logprobs": logprobs}
        return StreamPiece(sse({**self._base, "choices": [choice]}))
