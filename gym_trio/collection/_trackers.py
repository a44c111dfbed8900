"""A finished run in an experiment tracker: Weights & Biases, MLflow."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from typing import Any

from ..config import RunSettings
from ..errors import MissingExtraError
from ._report import RunReport

_LONGEST_NOTE = 300
# A folder is asked for by name, so it may be one; a server that is not there is not waited for by the minute.
_MLFLOW_DEFAULTS = {
    "MLFLOW_ALLOW_FILE_STORE": "true",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "20",
}

__all__ = ["check_trackers", "track_run", "tracked_numbers"]


def check_trackers(run: RunSettings) -> None:
    """**Errors**: `MissingExtraError` when the run keys ask for a tracker that is not installed."""
    if run.wandb_project:
        _wandb()
    if run.mlflow_tracking_uri:
        _mlflow()


def track_run(report: RunReport, run: RunSettings, config: Mapping[str, Any]) -> list[str]:
    """Tell the trackers that the run keys name: the numbers, ``config`` (which must hold no secrets), the metrics file.

    A tracker that fails costs its own record only: what went wrong is in the notes that are returned.
    """
    notes = []
    if run.wandb_project:
        notes += _guarded("wandb", lambda: _track_wandb(report, run, config))
    if run.mlflow_tracking_uri:
        with _mlflow_defaults():
            notes += _guarded("mlflow", lambda: _track_mlflow(report, run, config))
    return notes


def tracked_numbers(report: RunReport) -> Iterator[tuple[str, float]]:
    """Coverage and key metrics by name; ``agent/metric`` where there are several agents."""
    coverage = report.coverage
    for name in ("expected", "scored", "failed", "masked", "missing"):
        yield f"coverage/{name}", float(getattr(coverage, name))
    for kind, count in report.failure_classes.items():
        yield f"failures/{kind}", float(count)
    entries = report.aggregate or []
    for entry in entries:
        prefix = f"{(entry.get('agent_ref') or {}).get('name')}/" if len(entries) > 1 else ""
        for name, value in (entry.get("key_metrics") or {}).items():
            if isinstance(value, int | float):
                yield f"{prefix}{name}", float(value)


@contextlib.contextmanager
def _mlflow_defaults() -> Iterator[None]:
    """What MLflow is told by the environment, where the user's own says nothing of it."""
    added = {name: value for name, value in _MLFLOW_DEFAULTS.items() if name not in os.environ}
    os.environ.update(added)
    try:
        yield
    finally:
        for name in added:
            os.environ.pop(name, None)


def _guarded(name: str, work: Any) -> list[str]:
    try:
        work()
    except MissingExtraError:
        raise
    except Exception as error:  # noqa: BLE001  a tracker is another's service; the run's own files are written already
        said = " ".join(str(error).split())
        shown = said if len(said) <= _LONGEST_NOTE else f"{said[:_LONGEST_NOTE]}…"
        return [f"{name}: the run could not be recorded: {type(error).__name__}: {shown}"]
    return []


def _track_wandb(report: RunReport, run: RunSettings, config: Mapping[str, Any]) -> None:
    wandb = _wandb()
    if run.wandb_api_key:
        wandb.login(key=run.wandb_api_key)
    folder = str(report.files.folder)
    with wandb.init(project=run.wandb_project, name=run.wandb_name, config=dict(config), dir=folder) as record:
        record.summary.update(dict(tracked_numbers(report)))
        if report.files.aggregate.exists():
            artifact = wandb.Artifact("aggregate_metrics", type="metrics")
            artifact.add_file(str(report.files.aggregate))
            if run.upload_rollouts and run.upload_rollouts_to_wandb and report.files.output.exists():
                artifact.add_file(str(report.files.output))
            record.log_artifact(artifact)


def _track_mlflow(report: RunReport, run: RunSettings, config: Mapping[str, Any]) -> None:
    mlflow = _mlflow()
    client = mlflow.MlflowClient(tracking_uri=run.mlflow_tracking_uri)
    name = run.mlflow_experiment_name or "gym_trio"
    experiment = client.get_experiment_by_name(name)
    experiment_id = experiment.experiment_id if experiment is not None else client.create_experiment(name)
    record = client.create_run(experiment_id, run_name=report.files.output.stem)
    run_id = record.info.run_id
    for key, value in tracked_numbers(report):
        client.log_metric(run_id, key.replace("@", "_at_"), value)
    client.log_dict(run_id, dict(config), "config.json")
    if report.files.aggregate.exists():
        client.log_artifact(run_id, str(report.files.aggregate))
    client.set_terminated(run_id)


def _wandb() -> Any:
    try:
        import wandb
    except ImportError:
        raise MissingExtraError("recording a run in Weights & Biases (wandb_project)", extra="wandb") from None
    return wandb


def _mlflow() -> Any:
    try:
        import mlflow
    except ImportError:
        raise MissingExtraError("recording a run in MLflow (mlflow_tracking_uri)", extra="mlflow") from None
    return mlflow
