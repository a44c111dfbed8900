"""``gym-trio eval run`` and the keys of a configuration: what a flag and a key say, and which of them stands."""

from __future__ import annotations

import logging
import pathlib
import socket
from typing import Any

import orjson
import pytest

from gym_trio.cli import _eval_run, _preflight


@pytest.fixture
def config(scripted: Any) -> Any:
    """A scripted model's configuration with these run keys."""

    def made(**keys: Any) -> pathlib.Path:
        path: pathlib.Path = scripted("\\boxed{B}")
        path.write_bytes(orjson.dumps({**orjson.loads(path.read_bytes()), **keys}))
        return path

    return made


def test_the_output_of_a_configuration_is_taken_unless_a_flag_says_another(
    run: Any, config: Any, tmp_path: pathlib.Path
) -> None:
    """``output_jsonl_fpath``, then the folder ``results_dir``, then results/rollouts.jsonl."""
    words = ("eval", "run", "mcqa", "--limit", "1", "--no-health-check", "--config")
    for keys, more, written in (
        ({"output_jsonl_fpath": "a/a.jsonl", "results_dir": "b"}, (), "a/a.jsonl"),
        ({"results_dir": "b"}, (), "b/rollouts.jsonl"),
        ({"output_jsonl_fpath": "a/never.jsonl"}, ("-o", "c.jsonl"), "c.jsonl"),
    ):
        ran = run(*words, config(**keys), *more)
        assert ran.code == 0, ran.err
        assert (tmp_path / written).exists()
    assert not (tmp_path / "a/never.jsonl").exists()


def test_a_flag_stands_above_the_configurations_concurrency(
    run: Any, config: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``--concurrency``, then ``num_samples_in_parallel``, then 16."""
    bounds = []

    def noted(loaded: Any, **given: Any) -> dict[str, Any]:
        bounds.append(given["max_concurrent"])
        return given

    monkeypatch.setattr(_eval_run, "stream_arguments", noted)
    words = ("eval", "run", "mcqa", "--limit", "1", "--no-health-check", "--config")
    for keys, more in (
        ({}, ()),
        ({"num_samples_in_parallel": 3}, ()),
        ({"num_samples_in_parallel": 3}, ("--concurrency", 5)),
    ):
        assert run(*words, config(**keys), *more).code == 0
    assert bounds == [16, 3, 5]


def test_a_dry_run_counts_and_writes_nothing(run: Any, config: Any, tmp_path: pathlib.Path) -> None:
    """Everything is checked; keys without effect are told of."""
    ran = run("eval", "run", "mcqa", "--config", config(dry_run=True, cache_dir="x"), "--limit", 3, "--num-repeats", 2)
    assert ran.code == 0
    assert "dry run: 6 rollouts would be made" in ran.out
    assert "warning: cache_dir has no effect here: " in ran.err
    assert not (tmp_path / "results").exists()


def test_json_and_verbose_may_be_said_in_the_configuration(run: Any, config: Any) -> None:
    """As their flags."""
    root = logging.getLogger()
    before = root.level, root.handlers[:]
    ran = run("eval", "run", "mcqa", "--config", config(json=True, verbose=True), "--limit", "1")
    assert orjson.loads(ran.out)["complete"] is True
    assert (root.level, root.handlers) == before  # a command's logging ends with it


def test_a_refused_key_is_a_usage_error(run: Any, config: Any) -> None:
    """One line, exit code 2, no run."""
    ran = run("eval", "run", "mcqa", "--config", config(rollout_collection_driver="a:b"))
    assert ran.code == 2
    assert ran.err.startswith("gym-trio: rollout_collection_driver: ")


def test_an_endpoint_that_is_not_up_yet_is_waited_for(
    run: Any, endpoint: Any, config: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As long as ``model_endpoint_readiness_timeout_seconds`` says; without it the run ends at once."""
    asked = []
    found = _preflight._check

    async def check(*given: Any) -> None:
        asked.append(given)
        if len(asked) < 3:
            raise _preflight._NotReached("not yet")
        await found(*given)

    monkeypatch.setattr(_preflight, "_check", check)
    monkeypatch.setattr(_preflight, "LOOK_AGAIN_SECONDS", 0.01)
    url = endpoint(lambda head: b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n")
    words = ("eval", "run", "mcqa", "--model-url", url, "--model", "m", "--limit", "1")
    assert run(*words).code == 2
    run(*words, "++model_endpoint_readiness_timeout_seconds=60")
    assert len(asked) == 3


def test_the_wait_for_an_endpoint_has_an_end(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Then the run is refused as it is without a wait."""
    monkeypatch.setattr(_preflight, "LOOK_AGAIN_SECONDS", 0.01)
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}/v1"
        words = ("eval", "run", "mcqa", "--model-url", url, "--model", "m")
        ran = run(*words, "++model_endpoint_readiness_timeout_seconds=0.05")
    assert ran.code == 2
    assert "cannot be used" in ran.err
