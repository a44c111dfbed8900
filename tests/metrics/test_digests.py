"""The health of millions of records in little memory."""

from __future__ import annotations

import gc
import random
import sys
from typing import Any

import pytest

from gym_trio import metrics
from gym_trio.metrics._checks import Finding
from gym_trio.metrics._digest import RolloutDigest
from gym_trio.metrics._digests import Digests
from gym_trio.metrics._rows import task_order


def _digest(task: Any, rollout: Any, **more: Any) -> RolloutDigest:
    name = more.pop("rollout_id", f"{task}-{rollout}")
    findings, unobserved = more.pop("findings", ()), more.pop("unobserved", ())
    return RolloutDigest(task, rollout, more.pop("stage", None), name, findings, unobserved, **more)


def test_every_digest_comes_back_as_it_was_and_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """Names, stages, findings and tokens of each are its own, however much is kept once for many."""
    monkeypatch.setattr("gym_trio.metrics._digests._RUN", 4)
    finding = Finding("agent_turn_hollow", {"turn": 1})
    given = [
        _digest(task, rollout, stage=stage, tokens=(task if isinstance(task, int) else 9, 1, 2, 3), **more)
        for task in (3, 0, "b", "a", 11)
        for rollout in (1, 0)
        for stage in (None, 1, True)
        for more in ({}, {"findings": (finding,)}, {"rollout_id": f"own-{task}"}, {"replayed": 2})[: 1 + rollout * 3]
    ]
    random.Random(2).shuffle(given)
    digests = Digests()
    for digest in given:
        digests.append(digest)
    assert list(digests) == given
    assert digests[-1] == given[-1]
    assert digests[1:3] == given[1:3]
    assert [type(one.stage) for one in digests] == [type(one.stage) for one in given]
    ordered = digests.in_order()
    assert list(ordered) == sorted(given, key=lambda one: (task_order(one.task), one.rollout, str(one.stage)))
    assert sum(count for _, count in ordered.shapes()) == len(given)
    assert digests.token_sums() == [sum(one.tokens[at] for one in given) for at in range(4)]
    assert list(digests) == given


def test_no_object_is_kept_of_a_healthy_record() -> None:
    """A record leaves numbers in columns, and its task an entry in the summary that it shares with all like it."""
    records = 3000
    checker = metrics.HealthChecker()
    text = [{"type": "output_text", "text": "yes"}]
    output = [{"type": "message", "role": "assistant", "content": text}]
    before = sys.getallocatedblocks()
    for task in range(records):
        usage = {"input_tokens": task, "output_tokens": 1000 + task}
        checker.add({"_ng_task_index": task, "_ng_rollout_index": 0, "response": {"output": output, "usage": usage}})
    gc.collect()
    assert sys.getallocatedblocks() - before < records / 3
    summary = checker.finish().summary
    assert len(summary["tasks"]) == records
    assert len({id(entry) for entry in summary["tasks"].values()}) == 1
    assert summary["run"]["stats"]["tokens"]["prompt"] == sum(range(records))
