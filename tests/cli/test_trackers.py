"""Telemetry and experiment trackers, offline."""

from __future__ import annotations

import os
import pathlib
from typing import Any

import orjson
import pytest


def test_telemetry_to_a_file_has_the_spans_of_every_rollout(run: Any, scripted: Any, tmp_path: pathlib.Path) -> None:
    """++telemetry writes one JSON line per span; four rollouts are four rollout spans with their stages inside."""
    pytest.importorskip("opentelemetry.sdk", reason="the telemetry extra is not installed")
    ran = run_apart(tmp_path, scripted, "++telemetry={exporter: file, path: spans.jsonl}")
    assert ran.returncode == 0, ran.stderr
    spans = [orjson.loads(line) for line in (tmp_path / "spans.jsonl").read_bytes().splitlines()]
    names = [span["name"] for span in spans if "context" in span]
    assert names.count("gym_trio.rollout") == 4
    assert names.count("gym_trio.verify") == 4
    assert any("resource_metrics" in document for document in spans)


def run_apart(folder: pathlib.Path, scripted: Any, *words: str) -> Any:
    """In a process of its own: OpenTelemetry's providers can be set once per process."""
    import subprocess
    import sys

    command = [sys.executable, "-m", "gym_trio", "eval", "run", "mcqa", "--config", str(scripted("\\boxed{B}"))]
    return subprocess.run(
        [*command, "--limit", "4", "-o", "out/r.jsonl", *words], cwd=folder, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize(
    "telemetry", ["{exporter: pigeon}", "{exporter: file}", "{endpoint: 3}", "{exportr: file, path: x}"]
)
def test_wrong_telemetry_settings_are_named(run: Any, scripted: Any, telemetry: str) -> None:
    """Before anything starts, with the key."""
    ran = run("eval", "run", "mcqa", "--config", scripted("x"), f"++telemetry={telemetry}")
    assert ran.code == 2
    assert "telemetry" in ran.err


def test_mlflow_keeps_the_numbers_of_a_run(
    run: Any, scripted: Any, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a local tracking folder the key metrics, the coverage and the metrics file are there, offline.

    Nothing has to be set in the environment for that, and what is set for it is gone afterwards.
    """
    mlflow = pytest.importorskip("mlflow", reason="the mlflow extra is not installed")
    monkeypatch.delenv("MLFLOW_ALLOW_FILE_STORE", raising=False)
    uri = (tmp_path / "mlruns").as_uri()
    ran = run(
        *("eval", "run", "mcqa", "--config", scripted("\\boxed{B}"), "-o", "out/r.jsonl"),
        *(f"++mlflow_tracking_uri={uri}", "++mlflow_experiment_name=trial"),
    )
    assert ran.code == 0, ran.err
    assert "could not be recorded" not in ran.err
    assert "MLFLOW_ALLOW_FILE_STORE" not in os.environ
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    client = mlflow.MlflowClient(tracking_uri=uri)
    [record] = client.search_runs([client.get_experiment_by_name("trial").experiment_id])
    assert record.data.metrics["coverage/scored"] == 20
    assert 0 < record.data.metrics["mean/reward"] < 1
    assert record.info.status == "FINISHED"


def test_wandb_offline_keeps_a_run(
    run: Any, scripted: Any, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In offline mode the run is recorded beside the output, and nothing is sent."""
    pytest.importorskip("wandb", reason="the wandb extra is not installed")
    monkeypatch.setenv("WANDB_MODE", "offline")
    ran = run_apart(tmp_path, scripted, "++wandb_project=trial")
    assert ran.returncode == 0, ran.stderr
    assert "could not be recorded" not in ran.stderr
    assert list((tmp_path / "out").rglob("*.wandb"))


def test_a_tracker_that_fails_costs_its_record_only(run: Any, scripted: Any, tmp_path: pathlib.Path) -> None:
    """The run's files and its exit code are as without it, and the note says what went wrong."""
    pytest.importorskip("mlflow", reason="the mlflow extra is not installed")
    (tmp_path / "file").write_text("")
    ran = run(
        *("eval", "run", "mcqa", "--config", scripted("\\boxed{B}"), "-o", "out/r.jsonl"),
        f"++mlflow_tracking_uri={(tmp_path / 'file' / 'below').as_uri()}",
    )
    assert ran.code == 0
    assert "mlflow: the run could not be recorded" in ran.err
    assert (tmp_path / "out" / "r.jsonl").read_bytes().count(b"\n") == 20
