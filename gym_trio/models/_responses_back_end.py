"""`ResponsesBackEnd`: answers all three APIs from a Responses endpoint."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from typing import Any

import attrs

from ..errors import FailureKind, ModelCallError
from ..servers import ModelRequest, forms
from ._attempt import Answer
from ._provider import Provider
from ._streams import CheckedEvents, incomplete_stream, played, reading

__all__ = ["ResponsesBackEnd", "ResponsesOptions"]

logger = logging.getLogger("gym_trio.models")

PATH = "responses"
JSON = dict[str, Any]


@attrs.frozen
class ResponsesOptions:
    """``model`` replaces the request's; ``extra_body`` holds for what a request leaves out."""

    model: str | None = None
    extra_body: Mapping[str, Any] = attrs.Factory(dict)


class ResponsesBackEnd:
    """Responses clients are passed through; the other forms are converted."""

    def __init__(self, server: str, provider: Provider, options: ResponsesOptions) -> None:
        self._server = server
        self._provider = provider
        self._options = options
        self._warned: set[str] = set()

    async def answer(self, request: ModelRequest) -> JSON:
        """The whole answer to ``request`` in its own form."""
        response = await self._provider.call(request, PATH, self._convert(request))
        return self._in_form(request, response)

    @contextlib.asynccontextmanager
    async def stream(self, request: ModelRequest) -> AsyncIterator[AsyncIterator[forms.StreamPiece]]:
        """The answer to ``request`` as a stream in its own form."""
        async with self._provider.stream(request, PATH, {**self._convert(request), "stream": True}) as answer:
            if answer.chunks is None:
                yield played(self._server, request, self._in_form(request, answer.body or {}))
                return
            async with contextlib.aclosing(self._pieces(request, answer)) as pieces:
                yield pieces

    async def _pieces(self, request: ModelRequest, answer: Answer) -> AsyncGenerator[forms.StreamPiece, None]:
        writer = forms.open_writer(request.form, request)
        ended = False
        async for event in CheckedEvents(self._server, answer):
            with reading(self._server):
                whole = event.data["response"] if event.data and event.data["type"] in forms.FINAL_EVENTS else None
                if whole is not None:
                    ended, whole = True, self._checked(whole)
                if request.form == "responses":
                    piece = forms.StreamPiece(event.raw, whole)
                else:
                    piece = writer.feed(event.data) if event.data is not None else forms.StreamPiece()
            yield piece
        if not ended:
            raise incomplete_stream(self._server)

    def _in_form(self, request: ModelRequest, response: JSON) -> JSON:
        with reading(self._server):
            self._checked(response)
            if request.form == "responses":
                return response
            convert = forms.responses_to_chat if request.form == "chat_completions" else forms.responses_to_messages
            return convert(response)

    def _checked(self, response: JSON) -> JSON:
        if isinstance(response.get("output"), list):
            return response
        raise ModelCallError(
            f"model server {self._server}: the back end's answer is not a Responses object: it has no output",
            status=502,
            kind=FailureKind.PROVIDER_UNAVAILABLE,
        )

    def _convert(self, request: ModelRequest) -> JSON:
        if request.form == "responses":
            body = dict(request)
        else:
            body = _HUB[request.form](request)
            for name in forms.CARRIED_KEYS & body.keys():
                del body[name]
                self._warn(name, request.form)
        body = {name: value for name, value in body.items() if not name.startswith("_ng_")}
        if isinstance(body.get("input"), list):
            body["input"] = [_without_tokens(item) for item in body["input"]]
        body = {**self._options.extra_body, **body}
        if self._options.model is not None:
            body["model"] = self._options.model
        return body

    def _warn(self, name: str, form: str) -> None:
        if name not in self._warned:
            self._warned.add(name)
            logger.warning("model server %s: %r of %s requests has no place in Responses", self._server, name, form)


_HUB = {
    "chat_completions": forms.chat_request_to_responses,
    "messages": forms.messages_request_to_responses,
}


def _without_tokens(item: Any) -> Any:
    if not isinstance(item, dict) or forms.TOKEN_KEYS[1] not in item:
        return item
    return {name: value for name, value in item.items() if name not in forms.TOKEN_KEYS}
