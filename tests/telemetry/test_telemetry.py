"""Spans over the whole path of a rollout, in one trace; nothing without OpenTelemetry."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import orjson
import pytest

import gym_trio
from gym_trio.environments.example_single_tool_call import SingleToolCall

SPANS = """
import sys, orjson, trio
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
import gym_trio

exporter = InMemorySpanExporter()
provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(exporter))
trace.set_tracer_provider(provider)
config, rows = orjson.loads(sys.stdin.buffer.read())

async def main():
    async with gym_trio.open_gym(config, sys.argv[1]) as gym, gym.run_examples(rows) as rollouts:
        outcomes = [outcome async for outcome in rollouts]
    assert all(isinstance(outcome, gym_trio.Completed) for outcome in outcomes)

trio.run(main)
found = [
    {"name": s.name, "trace": s.context.trace_id, "id": s.context.span_id, "parent": s.parent and s.parent.span_id}
    for s in exporter.get_finished_spans()
]
print(orjson.dumps([{k: str(v) if v is not None else None for k, v in one.items()} for one in found]).decode())
"""


def config() -> dict[str, Any]:
    call = {"type": "function_call", "name": "get_weather", "call_id": "c", "arguments": '{"city": "Rome"}'}
    said = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "cold"}]}
    return {
        "env": {"resources_servers": {"example_single_tool_call": {"domain": "agent"}}},
        "agent": {
            "responses_api_agents": {
                "simple_agent": {
                    "resources_server": {"type": "resources_servers", "name": "env"},
                    "model_server": {"type": "responses_api_models", "name": "model"},
                }
            }
        },
        "model": {"responses_api_models": {"scripted_model": {"replies": [[call], [said]]}}},
    }


@pytest.mark.parametrize("serve", ["memory", "sockets"])
def test_a_rollout_is_one_trace(serve: str) -> None:
    """Seed, model, tools and verify are spans inside their rollout's, also across HTTP; traces do not mix."""
    pytest.importorskip("opentelemetry.sdk", reason="the telemetry extra is not installed")
    rows = list(SingleToolCall.rows({}))[:3]
    done = subprocess.run(
        [sys.executable, "-c", SPANS, serve], input=orjson.dumps([config(), rows]), capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr.decode()
    spans = orjson.loads(done.stdout)
    rollouts = {one["trace"]: one for one in spans if one["name"] == "gym_trio.rollout"}
    assert len(rollouts) == 3
    for trace, rollout in rollouts.items():
        inside = [one for one in spans if one["trace"] == trace and one is not rollout]
        names = sorted(one["name"].removeprefix("gym_trio.") for one in inside)
        assert names == ["model", "model", "seed", "tools", "verify"]
        assert {one["parent"] for one in inside} == {rollout["id"]}


def test_without_opentelemetry_nothing_is_imported() -> None:
    """A rollout in a process that does not use OpenTelemetry does not load it."""
    code = (
        "import sys, trio, gym_trio\n"
        "async def run(row): return {}\n"
        "async def main():\n"
        "    async with gym_trio.testing.open_fake_gym(run) as gym, gym.run_examples([{}]) as rollouts:\n"
        "        assert isinstance(await rollouts.receive(), gym_trio.Completed)\n"
        "trio.run(main)\n"
        "assert not [name for name in sys.modules if name.startswith('opentelemetry')]\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


async def test_without_opentelemetry_every_call_is_nothing() -> None:
    """The functions may be called anywhere."""
    from gym_trio import telemetry

    with telemetry.span("x", a=1, b=None), telemetry.remote_context([(b"traceparent", b"00-1-1-01")]):
        telemetry.count("c")
        telemetry.record("r", 1.0)
    assert isinstance(telemetry.outgoing(), dict)
    assert gym_trio.__version__
