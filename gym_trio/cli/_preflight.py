"""What is looked at before anything starts: numbers, servers, model endpoints (is it there? does it take the key?)."""

from __future__ import annotations

import os
from collections.abc import Iterator
from urllib.parse import urlsplit

import trio

from ..config import GymConfig, ServerBlock, redact_text
from ..errors import GymError, PeerDropped, ResponseError, TransportError, UsageError
from ..gym import ask_head, build_server
from ..http import ServerClient, open_socket_transport
from ._fleets import HEAD_TOKEN

__all__ = ["check_at_least_one", "check_endpoints", "check_head", "check_servers"]

LOOK_SECONDS = 10.0
LOOK_AGAIN_SECONDS = 1.0
# Implementation → the keys that hold its endpoint's URLs and its key.
ENDPOINT_KEYS = {"openai_model": ("openai_base_url", "openai_api_key"), "vllm_model": ("base_url", "api_key")}


def check_at_least_one(flag: str, count: int | None) -> None:
    """**Errors**: `UsageError` for a count that would leave nothing to do."""
    if count is not None and count < 1:
        raise UsageError(f"{flag}: must be a whole number of at least 1, not {count}")


def check_servers(config: GymConfig) -> None:
    """Make every server of ``config`` once, as it will be made when it is started.

    **Errors**: `ConfigError`, `MissingExtraError`: whatever its settings or its class would raise later.
    """
    for block in config.servers:
        if "command" not in block.settings:
            build_server(block, None)


def check_endpoints(config: GymConfig) -> None:
    """Ask each model endpoint of ``config`` for its list of models.

    An endpoint that answers at all is up, 404 included; one that is overloaded now may not be later. Where the
    configuration has ``model_endpoint_readiness_timeout_seconds``, one that cannot be reached yet is waited for.

    **Errors**: `UsageError` for one that cannot be reached, or that refuses the key.
    """
    trio.run(_check_all, config)


def check_head(config: GymConfig) -> None:
    """Ask the head server of a running fleet for its servers.

    **Errors**: `UsageError` for one that does not answer, or that wants another token.
    """
    trio.run(_ask_head, config)


async def _ask_head(config: GymConfig) -> None:
    url = config.run.head_server.url
    try:
        async with open_socket_transport() as transport:
            client = ServerClient({"head": (transport, url)})
            with trio.fail_after(LOOK_SECONDS):
                await ask_head(client, transport, os.environ.get(HEAD_TOKEN))
    except (TransportError, trio.TooSlowError) as error:
        raise UsageError(
            f"no head server answers at {url} ({error or 'no answer in time'}); start the fleet with "
            "gym-trio env start, or say where its head server is with ++head_server={host: HOST, port: PORT}"
        ) from None
    except ResponseError as error:
        if error.status in (401, 403):
            raise UsageError(f"the head server at {url} wants another token than {HEAD_TOKEN} has") from None
        raise


async def _check_all(config: GymConfig) -> None:
    async with open_socket_transport() as transport:
        client = ServerClient()
        for block, url, key in _endpoints(config):
            client.register(block.name, transport, url)
            await _check_in_time(client, block, url, key, _wait_seconds(config))


def _endpoints(config: GymConfig) -> Iterator[tuple[ServerBlock, str, str]]:
    for block in config.of_type("responses_api_models"):
        if block.implementation in ENDPOINT_KEYS and "command" not in block.settings:
            url_key, secret_key = ENDPOINT_KEYS[block.implementation]
            urls = block.settings.get(url_key) or ()
            for url in [urls] if isinstance(urls, str) else urls:
                yield (
                    block,
                    url if urlsplit(url).path.strip("/") else f"{url.rstrip('/')}/v1",
                    str(block.settings.get(secret_key) or ""),
                )


def _wait_seconds(config: GymConfig) -> float:
    """How long an endpoint may take to come up; not at all where nobody said so."""
    given = config.settings.get("model_endpoint_readiness_timeout_seconds")
    return 0.0 if given is None else config.run.model_endpoint_readiness_timeout_seconds


async def _check_in_time(client: ServerClient, block: ServerBlock, url: str, key: str, wait_seconds: float) -> None:
    until = trio.current_time() + wait_seconds
    while True:
        try:
            return await _check(client, block, url, key)
        except _NotReached:
            if trio.current_time() >= until:
                raise
        await trio.sleep(min(LOOK_AGAIN_SECONDS, max(0.0, until - trio.current_time())))


class _NotReached(UsageError):
    """Nobody answers at the endpoint."""


async def _check(client: ServerClient, block: ServerBlock, url: str, key: str) -> None:
    headers = {"authorization": f"Bearer {key}"} if key else None
    try:
        with trio.move_on_after(LOOK_SECONDS):
            response = await client.get(block.name, "/models", headers=headers)
            if response.status in (401, 403):
                what = "refuses the key" if key else "wants a key"
                hint = "give --model-api-key, policy_api_key in env.yaml, or POLICY_API_KEY"
                said = redact_text(response.text[:200], secrets=[key] if key else ())
                raise UsageError(f"model server {block.name}: {url} {what} (status {response.status}: {said}); {hint}")
            return
    except PeerDropped:
        return  # it is there; what it cuts off now it may not cut off later, and if it does, that is a failure row
    except TransportError as error:
        raise _NotReached(
            f"model server {block.name}: {url} cannot be used: {error}; start it, or correct --model-url"
        ) from None
    except UsageError:
        raise
    except GymError as error:
        raise UsageError(f"model server {block.name}: {url}: {error}") from None
    raise UsageError(f"model server {block.name}: {url} does not answer within {LOOK_SECONDS:g} s")
