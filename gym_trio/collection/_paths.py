"""The files of a run, all named after its output."""

from __future__ import annotations

import glob
import os
import pathlib

import attrs

from ..errors import UsageError


def output_path(output: str | os.PathLike[str]) -> pathlib.Path:
    """The path of a run's output.

    **Errors**: `UsageError` for a folder, for what is written like one, and for a device or a pipe, which would be
    replaced.
    """
    path = pathlib.Path(output)
    if path.is_dir() or str(output).endswith(os.sep):
        raise UsageError(f"{output}: must be a file such as {path / 'rollouts.jsonl'}, not a folder")
    if is_device(path) or path.parent == pathlib.Path("/dev"):  # of its links, some are to files
        raise UsageError(f"{output}: must be a file, for it is read and appended to; it is a device or a pipe")
    return path


def is_device(path: pathlib.Path) -> bool:
    """Whether the path is that of a device or a pipe: opening it may wait for ever, and it cannot be read twice."""
    return path.exists() and not path.is_file() and not path.is_dir()


@attrs.frozen
class RunFiles:
    """``out/r.jsonl`` and what stands beside it."""

    output: pathlib.Path

    @classmethod
    def of(cls, output: str | os.PathLike[str]) -> RunFiles:
        """The files of the run that writes ``output``.

        **Errors**: `UsageError` when ``output`` is a folder.
        """
        return cls(output_path(output))

    def _beside(self, suffix: str) -> pathlib.Path:
        return self.output.with_name(f"{self.output.stem}{suffix}")

    @property
    def folder(self) -> pathlib.Path:
        return self.output.parent

    @property
    def failures(self) -> pathlib.Path:
        return self._beside("_failures.jsonl")

    @property
    def materialized(self) -> pathlib.Path:
        return self._beside("_materialized_inputs.jsonl")

    @property
    def aggregate(self) -> pathlib.Path:
        return self._beside("_aggregate_metrics.json")

    @property
    def identity(self) -> pathlib.Path:
        """What was run, so that a resumed run can tell that it is the same."""
        return self._beside("_run.json")

    @property
    def timing(self) -> pathlib.Path:
        return self._beside("_timing.json")

    @property
    def profile(self) -> pathlib.Path:
        return self._beside("_reward_profiling.jsonl")

    @property
    def agent_metrics(self) -> pathlib.Path:
        return self._beside("_agent_metrics.json")

    @property
    def repeat_metrics(self) -> pathlib.Path:
        return self._beside("_repeat_level_metrics.json")

    @property
    def quality(self) -> pathlib.Path:
        return self.folder / "quality_summary.json"

    @property
    def verdicts(self) -> pathlib.Path:
        return self.folder / "rollout_verdicts.jsonl"

    @property
    def lock(self) -> pathlib.Path:
        return self.output.with_name(f".{self.output.name}.lock")


# What the names of a run's other JSONL files end in: `aggregate` leaves them out of a glob for rollouts.
NOT_ROLLOUTS = ("_failures", "_materialized_inputs", "_reward_profiling", "rollout_verdicts")


def prepare_folder(files: RunFiles) -> None:
    """Make the output's folder, and see that files can be written in it.

    **Errors**: `UsageError` that names the folder and the reason.
    """
    probe = files.folder / f".{files.output.name}.{os.getpid()}.probe"
    derived = (files.aggregate, files.identity, files.timing, files.quality, files.verdicts)
    for path in (files.output, files.failures, files.materialized, *derived):
        if path.is_dir() or is_device(path):
            what = "a folder" if path.is_dir() else "a device or a pipe"
            raise UsageError(f"{path}: is {what}, and the run writes a file of that name; choose another --output")
    try:
        files.folder.mkdir(parents=True, exist_ok=True)
        probe.write_bytes(b"")
        probe.unlink(missing_ok=True)  # the sweep of another run may have been there first
        for path in (files.output, files.failures, files.materialized):
            if path.exists():
                with path.open("ab"):
                    pass
    except OSError as error:
        where = error.filename if error.filename and "probe" not in str(error.filename) else files.folder
        raise UsageError(f"{where}: cannot be written ({error.strerror}); choose another --output") from None


def sweep(files: RunFiles) -> None:
    """Remove the half-written files that a killed run has left. Only for who holds the run's lock."""
    for path in (files.output, files.failures, files.materialized, files.aggregate, files.identity, files.timing):
        for left in files.folder.glob(f".{glob.escape(path.name)}.*.new"):
            left.unlink(missing_ok=True)
    for left in files.folder.glob(f".{glob.escape(files.output.name)}.*.probe"):
        left.unlink(missing_ok=True)
