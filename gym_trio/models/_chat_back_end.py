"""`ChatBackEnd`: answers all three APIs from a Chat Completions endpoint."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any

import attrs

from ..errors import FailureKind, FormError, ModelCallError
from ..servers import ModelRequest, forms
from ._attempt import Answer
from ._provider import Provider
from ._streams import CheckedEvents, incomplete_stream, played, reading
from ._token_ids import REQUEST_KEYS, TokenSource, generation_of, prompt_of

__all__ = ["ChatBackEnd", "ChatOptions"]

logger = logging.getLogger("gym_trio.models")

PATH = "chat/completions"
JSON = dict[str, Any]


@attrs.frozen
class ChatOptions:
    """How the endpoint is spoken to.

    ``model`` replaces the request's; ``extra_body`` holds for what a request leaves out. ``token_ids`` asks for the
    exact tokens and passes earlier ones back; ``split_think_tags`` makes reasoning of ``<think>...</think>``.
    ``always_streams`` fetches every answer as a stream, for endpoints that notice a client's leaving only when they
    write to it. ``whole_tool_tokens`` fetches whole what needs exact tokens and has tools, for endpoints that refuse
    the two together in a stream.
    """

    model: str | None = None
    extra_body: Mapping[str, Any] = attrs.Factory(dict)
    dialect: forms.ChatDialect = attrs.Factory(forms.ChatDialect)
    token_ids: bool = False
    always_streams: bool = False
    whole_tool_tokens: bool = False
    split_think_tags: bool = False


class ChatBackEnd:
    """Chat clients are passed through; the other forms are converted."""

    def __init__(
        self, server: str, provider: Provider, options: ChatOptions, token_source: TokenSource | None = None
    ) -> None:
        self._server = server
        self._provider = provider
        self._options = options
        self._token_source = token_source or TokenSource(provider)

    async def answer(self, request: ModelRequest) -> JSON:
        """The whole answer to ``request`` in its own form."""
        hub, chat = self._convert(request)
        if self._options.always_streams and not self._must_be_whole(chat):
            return await self._gathered(request, hub, chat)
        return await self._whole(request, hub, chat)

    def _must_be_whole(self, chat: JSON) -> bool:
        return self._options.whole_tool_tokens and self._options.token_ids and bool(chat.get("tools"))

    async def _whole(self, request: ModelRequest, hub: JSON | None, chat: JSON) -> JSON:
        """The whole answer, fetched as such."""
        chat.pop("stream", None)
        chat.pop("stream_options", None)
        completion = await self._provider.call(request, PATH, chat)
        choice = self._choice_of(completion)
        if self._options.token_ids:
            with reading(self._server):
                entries = (choice.get("logprobs") or {}).get("content") or []
                count = (completion.get("usage") or {}).get("completion_tokens")
                found = await self._tokens(request, chat, entries, count, choice["message"], choice, completion)
            if not _wants_logprobs(request):
                choice["logprobs"] = None
            choice["message"].update(found)
        return self._in_form(request, completion, hub)

    async def _gathered(self, request: ModelRequest, hub: JSON | None, chat: JSON) -> JSON:
        """The whole answer, fetched as a stream."""
        async with self._streamed(request, chat) as answer:
            if answer.chunks is None:
                self._choice_of(answer.body or {})
                return self._in_form(request, answer.body or {}, hub)
            reader = self._reader(request, hub)
            async for event in CheckedEvents(self._server, answer):
                with reading(self._server):
                    reader.feed(event.data or {})
            await self._finish(request, chat, reader)
        response = reader.builder.response
        if request.form == "responses":
            return response
        convert = forms.responses_to_chat if request.form == "chat_completions" else forms.responses_to_messages
        return convert(response)

    def _streamed(self, request: ModelRequest, chat: JSON) -> AbstractAsyncContextManager[Answer]:
        chat["stream"] = True
        chat["stream_options"] = {**(chat.get("stream_options") or {}), "include_usage": True}
        return self._provider.stream(request, PATH, chat)

    def _reader(self, request: ModelRequest, hub: JSON | None) -> forms.ChatChunkReader:
        return forms.ChatChunkReader(
            hub or {},
            split_think_tags=self._options.split_think_tags and hub is not None,
            keep_logprobs=_wants_logprobs(request),
        )

    async def _finish(self, request: ModelRequest, chat: JSON, reader: forms.ChatChunkReader) -> list[JSON]:
        """The last events of a stream, with the exact tokens where they are asked for."""
        if not reader.ended:
            raise incomplete_stream(self._server)
        tokens: JSON | None = None
        with reading(self._server):
            if self._options.token_ids:
                tokens = await self._tokens(request, chat, reader.tokens, reader.output_tokens, reader.extras)
            return reader.finish(tokens)

    @contextlib.asynccontextmanager
    async def stream(self, request: ModelRequest) -> AsyncIterator[AsyncIterator[forms.StreamPiece]]:
        """The answer to ``request`` as a stream in its own form."""
        hub, chat = self._convert(request)
        if self._must_be_whole(chat):
            yield played(self._server, request, await self._whole(request, hub, chat))
            return
        with_usage = bool((chat.get("stream_options") or {}).get("include_usage"))
        async with self._streamed(request, chat) as answer:
            if answer.chunks is None:
                self._choice_of(answer.body or {})
                yield played(self._server, request, self._in_form(request, answer.body or {}, hub))
                return
            reader = self._reader(request, hub)
            if hub is None and not self._options.token_ids:
                made = self._passed_through(answer, reader, with_usage=with_usage)
            else:
                made = self._converted(request, chat, answer, reader)
            async with contextlib.aclosing(made) as pieces:
                yield pieces

    def _in_form(self, request: ModelRequest, completion: JSON, hub: JSON | None) -> JSON:
        if hub is None:
            return completion
        with reading(self._server):
            response = forms.chat_to_responses(completion, hub, split_think_tags=self._options.split_think_tags)
            return response if request.form == "responses" else forms.responses_to_messages(response)

    def _convert(self, request: ModelRequest) -> tuple[JSON | None, JSON]:
        """The request as Responses (``None`` when the client speaks chat already) and as what is sent."""
        options = self._options
        hub: JSON | None = None
        if request.form == "chat_completions":
            chat = _checked(request)
        else:
            hub = dict(request) if request.form == "responses" else forms.messages_request_to_responses(request)
            chat = forms.responses_request_to_chat(hub, options.dialect)
        chat = {name: value for name, value in chat.items() if not name.startswith("_ng_")}
        chat = {**options.extra_body, **chat}
        if options.model is not None:
            chat["model"] = options.model
        if options.token_ids:
            chat.update(REQUEST_KEYS)
        else:
            chat["messages"] = [_without_tokens(message) for message in chat.get("messages") or ()]
        return hub, chat

    def _choice_of(self, completion: JSON) -> JSON:
        choices = completion.get("choices")
        first = choices[0] if isinstance(choices, list) and choices else None
        if isinstance(first, dict) and isinstance(first.get("message"), dict):
            return first
        raise ModelCallError(
            f"model server {self._server}: the answer is no chat completion: it has no choices[0].message",
            status=502,
            kind=FailureKind.PROVIDER_UNAVAILABLE,
        )

    async def _tokens(
        self,
        request: ModelRequest,
        chat: JSON,
        entries: list[JSON],
        count: int | None,
        *places: Mapping[str, Any],
    ) -> JSON:
        """The exact tokens of an answer of ``count`` tokens. What is not known whole is left out: it would be a lie."""
        try:
            return await self._find_tokens(request, chat, entries, count, places)
        except ModelCallError as error:
            # The answer is there, and asking for another is not what its client wants for want of its tokens.
            logger.warning("model server %s: the tokens of an answer are not known: %s", self._server, error)
            return {}

    async def _find_tokens(
        self,
        request: ModelRequest,
        chat: JSON,
        entries: list[JSON],
        count: int | None,
        places: Sequence[Mapping[str, Any]],
    ) -> JSON:
        generation = next((found for place in places if (found := generation_of(entries, place))), None)
        if generation is None:
            return {}
        prompt = prompt_of(*places) or await self._token_source.prompt(request, chat)
        if prompt is None:
            return {}
        ids, log_probs = generation["generation_token_ids"], generation["generation_log_probs"]
        if count is not None and len(ids) == count - 1:
            ending = await self._token_source.ending(request, [*prompt, *ids])
            if ending is not None:
                ids.append(ending[0])
                log_probs.append(ending[1])
        if count is not None and len(ids) != count:
            logger.debug("model server %s: %d of %d generated tokens are known", self._server, len(ids), count)
            return {}
        return {"prompt_token_ids": prompt, **generation}

    async def _passed_through(
        self, answer: Answer, reader: forms.ChatChunkReader, *, with_usage: bool
    ) -> AsyncGenerator[forms.StreamPiece, None]:
        async for event in CheckedEvents(self._server, answer):
            if event.data is not None:
                with reading(self._server):
                    reader.feed(event.data)
                if not with_usage and event.data.get("usage") and not event.data.get("choices"):
                    continue  # the client did not ask for it
            yield forms.StreamPiece(event.raw)
        if not reader.ended:
            raise incomplete_stream(self._server)
        with reading(self._server):
            reader.finish()
            whole = forms.responses_to_chat(reader.builder.response)
        yield forms.StreamPiece(whole=whole)

    async def _converted(
        self, request: ModelRequest, chat: JSON, answer: Answer, reader: forms.ChatChunkReader
    ) -> AsyncGenerator[forms.StreamPiece, None]:
        writer = forms.open_writer(request.form, request)
        async for event in CheckedEvents(self._server, answer):
            with reading(self._server):
                pieces = [writer.feed(made) for made in (reader.feed(event.data) if event.data is not None else ())]
            for piece in pieces:
                yield piece
        last = await self._finish(request, chat, reader)
        with reading(self._server):
            pieces = [writer.feed(made) for made in last]
        for piece in pieces:
            yield piece


def _checked(request: ModelRequest) -> JSON:
    """A chat request whose messages are what they must be; the rest is the back end's to judge."""
    messages = request.get("messages")
    if not isinstance(messages, list) or not all(isinstance(message, dict) for message in messages):
        raise FormError("this is no Chat Completions request: 'messages' must be a list of objects")
    return dict(request)


def _without_tokens(message: JSON) -> JSON:
    if forms.TOKEN_KEYS[1] not in message:
        return message
    return {name: value for name, value in message.items() if name not in forms.TOKEN_KEYS}


def _wants_logprobs(request: ModelRequest) -> bool:
    include = request.get("include") or ()
    return bool(request.get("logprobs") or request.get("top_logprobs") or "message.output_text.logprobs" in include)
