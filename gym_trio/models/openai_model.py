"""``openai_model``: a Responses endpoint, or any OpenAI-compatible endpoint whose API is found out by asking."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import AsyncIterator
from typing import Any, Literal

import attrs

from ..errors import ModelCallError
from ..servers import ModelRequest, forms
from ._chat_back_end import ChatBackEnd, ChatOptions
from ._endpoint import base_urls
from ._provider import Provider
from ._provider_settings import ProviderSettings
from ._remote import BackEnd, RemoteModel, RemoteModelSettings
from ._responses_back_end import ResponsesBackEnd, ResponsesOptions

__all__ = ["OpenAIModel"]

logger = logging.getLogger("gym_trio.models")

Api = Literal["auto", "responses", "chat_completions"]


@attrs.frozen(kw_only=True)
class OpenAIModelSettings(RemoteModelSettings):
    """``openai_base_url`` is one URL or a list, ``openai_model`` replaces the model's name in every request.

    ``api`` is what the endpoint speaks. With ``auto`` each client's own API is tried first, and where the endpoint has
    no such route the other one is used from then on.
    """

    openai_base_url: str | list[str] = attrs.field(validator=base_urls)
    openai_model: str
    openai_api_key: str | None = None
    api: Api = "auto"


class OpenAIModel(RemoteModel):
    """A model behind an OpenAI-compatible endpoint."""

    settings_type = OpenAIModelSettings
    settings: OpenAIModelSettings

    def provider_settings(self) -> ProviderSettings:
        """The endpoints of the block."""
        return self.settings.provider(self.settings.openai_base_url, self.settings.openai_api_key)

    def make_back_end(self, provider: Provider) -> BackEnd:
        """The back end of the API that ``api`` names, or one that finds out."""
        settings = self.settings
        model, extra = settings.openai_model, settings.extra_body
        responses = ResponsesBackEnd(self.name, provider, ResponsesOptions(model=model, extra_body=extra))
        chat = ChatBackEnd(self.name, provider, ChatOptions(model=model, extra_body=extra))
        if settings.api == "auto":
            return AutoBackEnd(self.name, responses, chat)
        return chat if settings.api == "chat_completions" else responses


# How an endpoint says that it has no such route.
_NO_ROUTE = frozenset({404, 405, 501})


class AutoBackEnd:
    """Speaks a client's own API where the endpoint has it, and the other one where not.

    Messages clients are answered through Responses first. A route that is not there has done nothing, so the call may
    be made again at the other.
    """

    def __init__(self, server: str, responses: ResponsesBackEnd, chat: ChatBackEnd) -> None:
        self._server = server
        self._both: dict[str, ResponsesBackEnd | ChatBackEnd] = {"responses": responses, "chat_completions": chat}
        self._absent: str | None = None  # the API that the endpoint turned out not to have
        self._present: set[str] = set()  # the APIs that have answered

    def _choose(self, request: ModelRequest) -> str:
        wanted = "chat_completions" if request.form == "chat_completions" else "responses"
        return _OTHER[wanted] if wanted == self._absent else wanted

    def _is_missing(self, api: str, error: ModelCallError) -> bool:
        return error.status in _NO_ROUTE and api not in self._present and self._absent in (None, api)

    def _learn(self, present: str, absent: str | None = None) -> None:
        self._present.add(present)
        if absent is not None and self._absent is None:
            self._absent = absent
            logger.warning("model server %s: the endpoint has no %s API; using %s", self._server, absent, present)

    async def answer(self, request: ModelRequest) -> dict[str, Any]:
        """The whole answer to ``request`` in its own form."""
        api = self._choose(request)
        try:
            answer = await self._both[api].answer(request)
        except ModelCallError as error:
            if not self._is_missing(api, error):
                raise
        else:
            self._learn(api)
            return answer
        answer = await self._both[_OTHER[api]].answer(request)
        self._learn(_OTHER[api], absent=api)
        return answer

    @contextlib.asynccontextmanager
    async def stream(self, request: ModelRequest) -> AsyncIterator[AsyncIterator[forms.StreamPiece]]:
        """The answer to ``request`` as a stream in its own form."""
        api = self._choose(request)
        async with contextlib.AsyncExitStack() as stack:
            try:
                pieces = await stack.enter_async_context(self._both[api].stream(request))
                self._learn(api)
            except ModelCallError as error:
                if not self._is_missing(api, error):
                    raise
                pieces = await stack.enter_async_context(self._both[_OTHER[api]].stream(request))
                self._learn(_OTHER[api], absent=api)
            yield pieces


_OTHER = {"responses": "chat_completions", "chat_completions": "responses"}
