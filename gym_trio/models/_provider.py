"""`Provider`: carries one model call to an endpoint, within its budget, and keeps its history."""

from __future__ import annotations

import contextlib
import logging
import random
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

import trio

from ..http import Transport
from ..servers import ModelRequest
from ._attempt import Answer, ProviderAttempt
from ._endpoint import Endpoint
from ._fair_limiter import FairLimiter
from ._provider_settings import ProviderSettings
from ._retry import CallBudget
from ._routing import Router

__all__ = ["Provider"]

logger = logging.getLogger("gym_trio.models")


class Provider:
    """The endpoints of one model server.

    A failed attempt is tried again only when that cannot do a thing twice: when nothing of it was sent, or when it was
    answered with a status that says so. Every failed attempt is logged, and noted on the request.

    **Errors**: `ModelCallError`, whose message names the server, the URL and the reason, with keys hidden.

    **Cancellation**: closes the connection of the attempt under way, which ends it at the provider.
    """

    def __init__(
        self, name: str, settings: ProviderSettings, transport: Transport, *, chance: random.Random | None = None
    ) -> None:
        self._name = name
        self._settings = settings
        self._transport = transport
        self._chance = chance or random.Random()
        self._secrets = frozenset({settings.api_key} if settings.api_key else ())
        headers = {
            **({"authorization": f"Bearer {settings.api_key}"} if settings.api_key else {}),
            **settings.extra_headers,
        }
        self.endpoints: Sequence[Endpoint] = [
            Endpoint(
                url,
                headers,
                FairLimiter(settings.max_concurrent_requests, settings.requests_per_minute),
            )
            for url in settings.base_urls
        ]
        self._router = Router(self.endpoints, settings.routing)

    @property
    def secrets(self) -> frozenset[str]:
        """What no message may show."""
        return self._secrets

    async def run(self) -> None:
        """What the endpoints' limits need while calls are made. Runs until cancelled."""
        async with trio.open_nursery() as nursery:
            for endpoint in self.endpoints:
                nursery.start_soon(endpoint.limiter.pace)

    async def call(
        self, request: ModelRequest, path: str, body: Mapping[str, Any] | None, *, has_slot: bool = False
    ) -> dict[str, Any]:
        """The answer to ``body``: a JSON object. Without a body it is a GET.

        With ``has_slot`` it is a part of a call that holds a slot already.
        """
        async with self._answered(request, path, body, streamed=False, has_slot=has_slot) as answer:
            assert answer.body is not None
            return answer.body

    @contextlib.asynccontextmanager
    async def stream(self, request: ModelRequest, path: str, body: Mapping[str, Any]) -> AsyncIterator[Answer]:
        """The answer to ``body`` while it comes. The slot at the endpoint is kept until the block ends."""
        async with self._answered(request, path, body, streamed=True) as answer:
            yield answer

    @contextlib.asynccontextmanager
    async def _answered(
        self,
        request: ModelRequest,
        path: str,
        body: Mapping[str, Any] | None,
        *,
        streamed: bool,
        has_slot: bool = False,
    ) -> AsyncIterator[Answer]:
        budget = CallBudget(self._settings.retry, trio.current_time(), self._chance)
        failed: list[Endpoint] = []
        waiting_since = trio.current_time()
        while True:
            endpoint = self._router.choose(request.rollout_id, failed)
            queued_since = trio.current_time()
            slot = contextlib.nullcontext() if has_slot else endpoint.limiter.slot(request.rollout_id or "")
            async with slot:
                attempt = ProviderAttempt(self._name, endpoint, path, self._settings, self._secrets)
                waited = trio.current_time() - waiting_since
                budget.queued(trio.current_time() - queued_since)
                async with attempt.make(self._transport, request, body, waited=waited, streamed=streamed) as answer:
                    if answer is not None:
                        yield answer
                        return
            failed.append(endpoint)
            waiting_since = trio.current_time()
            await self._wait(budget, attempt)

    async def _wait(self, budget: CallBudget, attempt: ProviderAttempt) -> None:
        """Wait for the next attempt. **Errors**: `ModelCallError` when there is none."""
        refusal = attempt.refusal
        wait = budget.next_wait(trio.current_time(), attempt.advised_seconds) if refusal.retryable else None
        if wait is None:
            raise attempt.error(refusal, f", after {budget.attempts} attempts" if budget.attempts > 1 else "")
        logger.warning(
            "model server %s: %s %s; attempt %d follows in %.1f s",
            self._name,
            attempt.url,
            refusal.message,
            budget.attempts + 1,
            wait,
        )
        if attempt.advised_seconds is not None:
            attempt.endpoint.limiter.pause(attempt.advised_seconds)
        await trio.sleep(wait)
