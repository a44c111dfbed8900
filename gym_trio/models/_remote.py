"""`RemoteModel`: a model server whose model is somewhere else, and the settings that all of these share."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

import attrs
import trio

from ..config import optional, positive_int, positive_seconds
from ..errors import ConfigError
from ..http import Transport, open_socket_transport
from ..servers import ModelRequest, ModelServer, forms
from ._provider import Provider
from ._provider_settings import ProviderSettings
from ._retry import RetrySettings
from ._routing import Routing

__all__ = ["BackEnd", "RemoteModel", "RemoteModelSettings"]


@attrs.frozen(kw_only=True)
class RemoteModelSettings:
    """The keys that every remote model's block may have.

    ``extra_body`` holds for what a request leaves out, ``extra_headers`` are sent with every call. The limits and
    ``routing`` are per base URL. A call is tried at most ``retry_max_attempts`` times, the last time no later than
    ``retry_budget_seconds`` after the first. ``attempt_seconds`` bounds one attempt with its whole answer,
    ``idle_seconds`` the silence inside a stream.
    """

    extra_body: dict[str, Any] = attrs.Factory(dict)
    extra_headers: dict[str, str] = attrs.Factory(dict)
    routing: Routing = "sticky"
    max_concurrent_requests: int | None = attrs.field(default=None, validator=optional(positive_int))
    requests_per_minute: float | None = attrs.field(default=None, validator=optional(positive_seconds))
    retry_max_attempts: int = attrs.field(default=6, validator=positive_int)
    retry_budget_seconds: float = attrs.field(default=300, validator=positive_seconds)
    retry_first_wait_seconds: float = attrs.field(default=0.5, validator=positive_seconds)
    attempt_seconds: float = attrs.field(default=3600, validator=positive_seconds)
    idle_seconds: float = attrs.field(default=600, validator=positive_seconds)

    def provider(self, base_urls: str | list[str], api_key: str | None, **more: Any) -> ProviderSettings:
        """These settings for endpoints at ``base_urls``."""
        return ProviderSettings(
            base_urls=tuple([base_urls] if isinstance(base_urls, str) else base_urls),
            api_key=api_key or None,
            extra_headers={**self.extra_headers, **more.pop("extra_headers", {})},
            routing=self.routing,
            max_concurrent_requests=more.pop("max_concurrent_requests", self.max_concurrent_requests),
            requests_per_minute=self.requests_per_minute,
            retry=RetrySettings(
                max_attempts=self.retry_max_attempts,
                budget_seconds=self.retry_budget_seconds,
                first_wait_seconds=self.retry_first_wait_seconds,
            ),
            attempt_seconds=self.attempt_seconds,
            idle_seconds=self.idle_seconds,
        )


class BackEnd(Protocol):
    """Answers requests of any form from one kind of endpoint."""

    async def answer(self, request: ModelRequest) -> dict[str, Any]: ...

    def stream(self, request: ModelRequest) -> AbstractAsyncContextManager[AsyncIterator[forms.StreamPiece]]: ...


class RemoteModel(ModelServer):
    """A model server that asks a provider. Sub-classes say where that is and which of the APIs it speaks.

    ``transport`` replaces the server's own socket transport, which lives as long as the server.

    **Errors**: `ModelCallError`: the provider's own words, its status, its advice; see `Provider`.
    """

    def __init__(self, *, transport: Transport | None = None, **arguments: Any) -> None:
        super().__init__(**arguments)
        self._transport = transport
        self._back_end: BackEnd | None = None

    def provider_settings(self) -> ProviderSettings:
        """Where the model is."""
        raise NotImplementedError

    def make_back_end(self, provider: Provider) -> BackEnd:
        """What speaks to it."""
        raise NotImplementedError

    @contextlib.asynccontextmanager
    async def lifespan(self) -> AsyncIterator[None]:
        """Connections and limits live as long as the server."""
        async with super().lifespan(), contextlib.AsyncExitStack() as stack:
            transport = self._transport
            if transport is None:
                transport = await stack.enter_async_context(open_socket_transport())
            provider = Provider(self.name, self.provider_settings(), transport)
            failure: BaseException | None = None
            async with trio.open_nursery() as nursery:
                # What is raised in here is raised again outside, where no nursery wraps it into a group.
                nursery.start_soon(provider.run)
                self._back_end = self.make_back_end(provider)
                try:
                    yield
                except BaseException as error:  # noqa: BLE001  raised again below
                    failure = error
                self._back_end = None
                nursery.cancel_scope.cancel()
            if failure is not None:
                raise failure

    @property
    def back_end(self) -> BackEnd:
        """**Errors**: `ConfigError` when the server's lifespan is not running."""
        if self._back_end is None:
            raise ConfigError("the server is not running: whatever serves its app must run its lifespan", key=self.name)
        return self._back_end

    async def answer(self, request: ModelRequest) -> Mapping[str, Any]:
        """The whole answer to ``request`` in its own form."""
        return await self.back_end.answer(request)

    def stream(self, request: ModelRequest) -> AbstractAsyncContextManager[AsyncIterator[forms.StreamPiece]]:
        """The answer to ``request`` as a stream in its own form."""
        return self.back_end.stream(request)

    async def responses(self, request: ModelRequest) -> Mapping[str, Any]:
        """Answer a Responses request."""
        return await self.back_end.answer(request)

    async def chat_completions(self, request: ModelRequest) -> Mapping[str, Any]:
        """Answer a Chat Completions request."""
        return await self.back_end.answer(request)

    async def messages(self, request: ModelRequest) -> Mapping[str, Any]:
        """Answer a Messages request."""
        return await self.back_end.answer(request)
