"""Captured model calls: complete behind the barrier, bounded, redacted, and never in the event loop's way."""

from __future__ import annotations

import os

import orjson
import pytest
import trio
import trio.testing

from gym_trio.capture import CaptureSettings, open_capture_store, read_captures
from gym_trio.errors import RunError
from gym_trio.metrics import check_health, rollout_perf
from gym_trio.servers import ModelServer
from gym_trio.testing import ScriptedModel

ASKED = {
    "/v1/responses": {"input": "hi"},
    "/v1/chat/completions": {"messages": [{"role": "user", "content": "hi"}]},
    "/v1/messages": {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 9},
}


async def test_calls_of_every_api_are_kept_with_their_tokens(open_captured) -> None:
    """Each call has its id, times, status, token counts and answer; taking them forgets them."""
    async with open_captured(replies=["hello"] * 3) as running:
        for path, body in ASKED.items():
            answer = await running.ask("0-0", body, path)
            assert answer.status == 200
        assert await running.store.flush("0-0")
        captured = running.store.take("0-0")
        assert running.store.take("0-0").calls == ()
    assert [entry["api"] for entry in captured.calls] == ["responses", "chat_completions", "messages"]
    assert len({entry["model_call_id"] for entry in captured.calls}) == 3
    for entry in captured.calls:
        assert (entry["status_code"], entry["outcome"], entry["error"]) == (200, "completed", None)
        assert entry["tokens_in"] + entry["tokens_out"] == entry["tokens_total"] > 0
        assert entry["duration_ms"] >= entry["first_byte_ms"] > 0
        assert entry["response"]
        assert entry["finish_reason"] in ("stop", "end_turn")
    assert captured.gaps == ()


class Failing(ModelServer):
    """A model server that raises."""

    async def responses(self, request):
        raise RuntimeError("Bearer abcdefgh is wrong")


async def test_failed_and_cancelled_calls_are_kept_too(open_captured, autojump_clock) -> None:
    """With their error and its category; a call that is still open is named when the rollout is taken."""
    sleepy = ScriptedModel(["x", "y"], name="sleepy", delay_seconds=1000)
    async with open_captured(Failing(name="model"), sleepy, flush_seconds=0.05) as running:
        assert (await running.ask("0-0", {"input": "x"})).status == 500
        with trio.move_on_after(0.01):
            await running.ask("0-0", {"input": "x"}, server="sleepy")
        assert await running.store.flush("0-0")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(lambda: running.ask("0-0", {"input": "x"}, server="sleepy"))
            await trio.testing.wait_all_tasks_blocked()
            assert not await running.store.flush("0-0")
            captured = running.store.take("0-0")
            nursery.cancel_scope.cancel()
    assert [entry["error_category"] for entry in captured.calls] == ["provider_error", "cancelled"]
    assert "Bearer ****" in captured.calls[0]["error"]
    assert captured.calls[1]["status_code"] is None
    assert [gap["code"] for gap in captured.gaps] == ["model_call_capture_incomplete"]


async def test_the_barrier_waits_for_what_is_on_its_way_to_the_disk(open_captured, tmp_path) -> None:
    """Two hundred rollouts of three calls at once: after its flush each rollout's file has all of its calls."""
    async with open_captured(replies=["a", "b", "c"], folder=tmp_path) as running:

        async def roll(number: int) -> None:
            for turn in range(3):
                await running.ask(f"{number}-0", {"input": f"{number} {turn}"})
            assert await running.store.flush(f"{number}-0")
            captured = await read_captures(tmp_path, f"{number}-0")
            assert [entry["request"]["input"] for entry in captured.calls] == [f"{number} {turn}" for turn in range(3)]
            assert captured.gaps == ()
            assert [e["response"] for e in running.store.take(f"{number}-0").calls] == [
                e["response"] for e in captured.calls
            ]

        async with trio.open_nursery() as nursery:
            for number in range(200):
                nursery.start_soon(roll, number)


async def test_leaving_the_block_writes_the_rest(model_call, tmp_path) -> None:
    """What was recorded and not flushed is on disk when the store has closed, also after a cancellation."""
    with trio.CancelScope() as scope:
        async with open_capture_store(CaptureSettings(folder=tmp_path)) as store:
            for _ in range(50):
                store.begin("0-0")
                store.record(model_call("0-0"))
            scope.cancel()
            await trio.lowlevel.checkpoint()
    assert len((await read_captures(tmp_path, "0-0")).calls) == 50


async def test_keys_are_hidden_and_tokens_are_not(open_captured, tmp_path) -> None:
    """What is shaped like a key is hidden on disk and in the row; a schema's ``password`` property stays."""
    secret = "sk-abcdefghijklmnop"
    schema = {"type": "object", "properties": {"password": {"type": "string", "description": f"as {secret}"}}}
    body = {"input": f"my key is {secret}", "tools": [{"type": "function", "name": "f", "parameters": schema}]}
    async with open_captured(replies=[f"it is {secret}"], folder=tmp_path) as running:
        await running.ask("0-0", body)
        await running.store.flush("0-0")
        row = orjson.dumps(running.store.take("0-0").to_row()).decode()
    (entry,) = (await read_captures(tmp_path, "0-0")).calls
    for shown in (row, str(entry)):
        assert secret not in shown
        assert "it is sk-" in shown
    assert "password" in entry["request"]["tools"][0]["parameters"]["properties"]


async def test_sizes_are_bounded(open_captured, tmp_path) -> None:
    """A call that is too large, and every call once the folder is full, is kept without its payload and named."""
    bounds = {"folder": tmp_path, "max_call_bytes": 2000, "max_total_bytes": 5000}
    async with open_captured(replies=["a"] * 9, **bounds) as running:
        await running.ask("0-0", {"input": "x" * 3000})
        for _ in range(8):
            await running.ask("1-0", {"input": "x"})
        await running.store.flush("0-0")
        await running.store.flush("1-0")
        large, full = running.store.take("0-0"), running.store.take("1-0")
    assert [gap["code"] for gap in large.gaps] == ["model_call_payload_left_out"]
    assert large.calls[0]["response"] is not None  # the row still has it
    (entry,) = (await read_captures(tmp_path, "0-0")).calls
    assert (entry["request"], entry["response"]) == (None, None)
    assert entry["left_out_bytes"] > 3000
    assert entry["tokens_out"] > 0
    assert 0 < len(full.gaps) < 8
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) < 9 * 2000


async def test_rollouts_that_nobody_takes_are_forgotten_in_their_order(open_captured) -> None:
    """Memory is bounded without anyone taking anything."""
    async with open_captured(replies=["a"], max_rollouts=10) as running:
        for number in range(25):
            await running.ask(f"{number}-0", {"input": "x"})
        assert running.store.take("14-0").calls == ()
        assert len(running.store.take("24-0").calls) == 1
        assert "9 rollouts" in repr(running.store)


async def test_names_of_rollouts_stay_in_the_folder(tmp_path, open_captured) -> None:
    """No id writes elsewhere, and ids that differ have files that differ."""
    async with open_captured(replies=["a"], folder=tmp_path / "calls") as running:
        for rollout in ("..", "a%20b", "a_b", "x" * 300):
            await running.ask(rollout, {"input": rollout})
            assert await running.store.flush(rollout)
        await running.client.post("model", "/v1/responses", json={"input": "nobody's"})
    assert os.listdir(tmp_path) == ["calls"]
    names = os.listdir(tmp_path / "calls")
    assert len(names) == 5
    assert any(name.startswith("_unattributed@") for name in names)


async def test_torn_lines_and_older_attempts_are_told_apart(tmp_path) -> None:
    """A line that cannot be read is a gap; calls before ``since`` belong to an attempt that was cut short."""
    lines = [b'{"started_at": 1.0}', b'{"started_at": 9.0}', b'{"started_at": 8', b"5"]
    (tmp_path / "0-0@model.jsonl").write_bytes(b"\n".join(lines))
    (tmp_path / "0-0@judge.jsonl").write_bytes(b'{"started_at": 8.5}\n')
    (tmp_path / "0-0-a1@model.jsonl").write_bytes(b'{"started_at": 8.7}\n')
    captured = await read_captures(tmp_path, "0-0", since=5.0)
    assert [entry["started_at"] for entry in captured.calls] == [8.5, 9.0]
    assert [gap["code"] for gap in captured.gaps] == ["model_call_capture_records_unreadable"] * 2
    assert (await read_captures(tmp_path / "nowhere", "0-0")).calls == ()


async def test_a_folder_that_cannot_be_written_is_named(tmp_path, open_captured, caplog) -> None:
    """At the start it is an error; later each rollout that lost a call says so."""
    file = tmp_path / "file"
    file.write_text("")
    with pytest.raises(RunError, match="captured"):
        async with open_capture_store(CaptureSettings(folder=file / "x")):
            pass
    async with open_captured(replies=["a"], folder=tmp_path / "calls") as running:
        (tmp_path / "calls").rmdir()
        await running.ask("0-0", {"input": "x"})
        assert await running.store.flush("0-0")
        captured = running.store.take("0-0")
    assert [gap["code"] for gap in captured.gaps] == ["model_call_capture_incomplete"]
    assert "were not written" in caplog.text


async def test_a_collector_elsewhere_flushes_over_http(open_captured, tmp_path) -> None:
    """The model server's route waits like the store does."""
    async with open_captured(replies=["a"], folder=tmp_path) as running:
        await running.ask("0-0", {"input": "x"})
        answer = await running.client.post("model", "/ng-rollout/0-0/flush_model_calls", json={})
        assert answer.json() == {"recorded": True, "complete": True}
        assert len((await read_captures(tmp_path, "0-0")).calls) == 1
        assert (await running.client.get("model", "/v1/models")).json()["data"][0]["id"] == "model"


async def test_health_checks_and_perf_read_what_is_captured(open_captured) -> None:
    """A row with its capture is healthy, and its ``ng_perf`` comes from the captured counts."""
    async with open_captured(replies=["a"]) as running:
        response = (await running.ask("0-0", {"input": "x"})).json()
        captured = running.store.take("0-0")
    row = {"_ng_task_index": 0, "_ng_rollout_index": 0, "response": response, "reward": 1.0}
    row["ng_model_call_capture"] = captured.to_row()
    perf = rollout_perf(row)
    assert perf["completion_tokens"] == response["usage"]["output_tokens"]
    report = check_health([row])
    assert report.summary["run"]["verdicts"]["unhealthy"] == 0
    assert report.summary["run"]["artifacts"]["captures"] == 1
