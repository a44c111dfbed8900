"""Several base URLs: who is asked, and who next."""

from __future__ import annotations

import itertools
from collections import Counter

import pytest
import trio
import trio.testing

from gym_trio.errors import ConfigError
from gym_trio.models.openai_model import OpenAIModel
from gym_trio.models.vllm_model import VLLMModel

URLS = ["http://a/v1", "http://b", "http://c/api/v2/"]


def host_of(asked) -> str:
    return asked.headers["host"].partition(":")[0]


async def test_sticky_keeps_a_rollout_where_it_is(open_vllm, chat_answer, autojump_clock) -> None:
    """All calls of a rollout go to one endpoint; many rollouts use all of them."""
    async with open_vllm(lambda *_: (200, {}, chat_answer()), base_url=URLS) as model:
        for rollout in range(30):
            for _ in range(2):
                await model.respond(f"{rollout}-0")
        hosts = [host_of(asked) for asked in model.back_end.asked]
    assert hosts[::2] == hosts[1::2]
    assert set(hosts) == {"a", "b", "c"}
    paths = {host_of(asked): asked.path for asked in model.back_end.asked}
    assert paths == {"a": "/v1/chat/completions", "b": "/v1/chat/completions", "c": "/api/v2/chat/completions"}


async def test_least_busy_spreads_what_is_in_flight(open_vllm, chat_answer, autojump_clock) -> None:
    """Nine calls at once are three at each endpoint, even for one rollout."""

    async def answer(*_):
        await trio.sleep(1)
        return 200, {}, chat_answer()

    async with open_vllm(answer, base_url=URLS, routing="least_busy") as model, trio.open_nursery() as nursery:
        for _ in range(9):
            nursery.start_soon(model.respond)
    assert Counter(host_of(asked) for asked in model.back_end.asked) == {"a": 3, "b": 3, "c": 3}


@pytest.mark.parametrize("routing", ["sticky", "least_busy"])
async def test_a_failed_attempt_is_repeated_elsewhere(routing, open_vllm, autojump_clock) -> None:
    """Each attempt goes to another endpoint while there are fresh ones, and never to the last one twice running."""
    config = {"base_url": URLS, "routing": routing, "retry_max_attempts": 7}
    async with open_vllm(lambda *_: (503, {}, {}), **config) as model:
        await model.respond()
        hosts = [host_of(asked) for asked in model.back_end.asked]
    assert set(hosts[:3]) == {"a", "b", "c"}
    assert all(one != next_one for one, next_one in itertools.pairwise(hosts))


@pytest.mark.parametrize("url", ["ftp://x", "not a url", "http://", "", []])
@pytest.mark.parametrize(("cls", "key"), [(VLLMModel, "base_url"), (OpenAIModel, "openai_base_url")])
def test_a_base_url_that_is_none_is_named_before_anything_starts(url, cls, key) -> None:
    """The error names the server and the key."""
    with pytest.raises(ConfigError, match=f"model.{key}"):
        cls(name="model", config={key: url, key.replace("base_url", "model"): "m"})
