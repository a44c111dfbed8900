"""`prepare_run`: everything that can go wrong before a run starts, goes wrong here."""

from __future__ import annotations

import contextlib
import itertools
import os
import pathlib
import re
from array import array
from collections.abc import Callable, Iterator
from typing import Any

import attrs

from ..errors import UsageError
from ._identity import RowsDigest, check_identity, identity_of, read_identity, write_identity
from ._jsonl import dump_line, open_to_read, parse_line, read_jsonl, repair_tail, replacing, write_rows
from ._judged import take_back_unjudged
from ._keys import ATTEMPT, ROLLOUT, ROLLOUT_ID, TASK, NumberSet, key_of, pack
from ._ledger import Ledger, read_ledger
from ._lock import run_lock
from ._materialize import Materializer
from ._options import RunOptions
from ._paths import RunFiles, prepare_folder, sweep
from ._prompt import load_prompt
from ._records import odd_classes
from ._repeated import RepeatedLines, told
from ._routing import AGENT_REF
from ._skills import skills_ref
from ._source import RowSource

_ATTEMPT_SUFFIX = re.compile(r"-a\d+\Z")


@attrs.frozen(kw_only=True, eq=False)
class PreparedRun:
    """A run that may start: its rows are on disk, its lock is held, what was done before is known."""

    options: RunOptions
    files: RunFiles
    ledger: Ledger
    agents: tuple[str, ...]  # those that its rows go to
    resumed: bool
    notes: tuple[str, ...]  # what was repaired, and what the options name that no row has
    secrets: frozenset[str] = attrs.field(default=frozenset(), repr=False)

    @property
    def expected(self) -> int:
        """How many rollouts the run owes in all."""
        return len(self.ledger)

    @property
    def pending(self) -> int:
        """How many are still to be sent."""
        return self.ledger.pending(self.options.max_attempts)

    def rows(self, go_on: Callable[[], bool] = lambda: True) -> Iterator[dict[str, Any]]:
        """The rows that are still to be sent, read as they are pulled, until ``go_on()`` is false."""
        path = self.files.materialized
        first = self.ledger.task_seconds() if self.options.longest_first else {}
        for row in self._in_order(path, first):
            if not go_on():
                return
            attempt = self.ledger.next_attempt(row, self.options.max_attempts)
            if attempt is not None:
                yield _as_attempt(row, attempt)

    def _in_order(self, path: pathlib.Path, first: dict[int, float]) -> Iterator[dict[str, Any]]:
        """Rows of tasks that were seen to take long, the longest first; then the others as they stand in the file."""
        with open_to_read(path) as file:
            if first:
                for _, number, offset in sorted(_places(file, path, first)):
                    file.seek(offset)
                    yield parse_line(file.readline(), path, number)
                file.seek(0)
            for number, line in enumerate(file, 1):
                row = parse_line(line, path, number)
                if row[TASK] not in first:
                    yield row


def _as_attempt(row: dict[str, Any], attempt: int) -> dict[str, Any]:
    if attempt == (row.get(ATTEMPT) or 0):
        return row
    made = {**row, ATTEMPT: attempt}
    if isinstance(row.get(ROLLOUT_ID), str):
        made[ROLLOUT_ID] = _ATTEMPT_SUFFIX.sub("", row[ROLLOUT_ID])  # the stream puts that of this attempt
    return made


def _places(file: Any, path: pathlib.Path, first: dict[int, float]) -> Iterator[tuple[float, int, int]]:
    offset = 0
    for number, line in enumerate(file, 1):
        task = parse_line(line, path, number)[TASK]
        if task in first:
            yield -first[task], number, offset
        offset += len(line)


@contextlib.contextmanager
def prepare_run(options: RunOptions) -> Iterator[PreparedRun]:
    """Check every row, take the output's lock, find out what was done before, and write the materialised rows.

    **Ownership**: the lock is held until the block is left.

    **Errors**: `UsageError` for anything that the caller gave wrongly, a run that is not the one to be resumed
    included; `RunLocked` when another run writes the same output.
    """
    files = RunFiles.of(options.output)
    _refuse_own_files(options, files)
    materializer = _materializer(options)
    prepare_folder(files)
    with run_lock(files.lock, about=files.output):
        yield _begin(options, files, materializer)


def rollouts_of(options: RunOptions) -> int:
    """How many rollouts a run of these options makes in all. Every row is checked, and nothing is written.

    **Errors**: `UsageError`, `RowError`: those of `prepare_run` for the rows.
    """
    return sum(1 for _ in _materializer(options))


def _materializer(options: RunOptions) -> Materializer:
    prompt = load_prompt(options.prompt_config) if options.prompt_config is not None else None
    skills = skills_ref(options.skills) if options.skills is not None else None
    source = RowSource(options.rows, limit=options.limit, prompt=prompt, recorded=options.recorded)
    return Materializer(source, options, skills=skills)


def _refuse_own_files(options: RunOptions, files: RunFiles) -> None:
    """A run must not read what it is about to replace."""
    if not isinstance(options.rows, str | os.PathLike):
        return
    rows = pathlib.Path(options.rows)
    for path in (files.output, files.failures, files.materialized):
        if rows.resolve() == path.resolve():
            raise UsageError(f"{rows}: is a file that the run itself writes; choose another --output")


def _begin(options: RunOptions, files: RunFiles, materializer: Materializer) -> PreparedRun:
    sweep(files)
    notes = [*materializer.notes, *odd_classes(options.count_failure_classes_as_zero)]
    resumed = options.resume and any(_has_rows(path) for path in (files.output, files.failures))
    if not resumed:
        notes += _make_way(files)
    else:
        repairs = (repair_tail(path) for path in (files.output, files.failures, files.materialized))
        notes += [done for done in repairs if done is not None]
        if options.retry_invalid_judge_responses and (taken := take_back_unjudged(files)):
            notes.append(f"{files.output}: {taken} results without a valid judgement were taken back")
    stored = read_identity(files.identity) if resumed else None
    if resumed and stored is None and _has_rows(files.materialized):
        notes.append(
            f"{files.identity}: is not there, so that this is the same run was not checked;"
            f" it has the rows of {files.materialized.name}, whatever --limit and --num-repeats say"
        )
        notes += _without_repeated(files.materialized)
        written = _survey(files.materialized)
    else:
        written = _write_rows(files, materializer, options, stored)
        notes += [written.growth] if written.growth is not None else []
    retry_timeouts = options.retry_terminal_timeouts
    if resumed:
        ledger, repeated = read_ledger(files, written.keys, retry_terminal_timeouts=retry_timeouts)
        notes += repeated
    else:
        ledger = Ledger(written.keys, retry_terminal_timeouts=retry_timeouts)
    if ledger.strangers:
        raise UsageError(
            f"{files.output}: cannot be resumed, it has {ledger.strangers} rows of rollouts that this run does not have"
        )
    return PreparedRun(
        options=options,
        files=files,
        ledger=ledger,
        agents=tuple(sorted(written.agents)),
        resumed=resumed,
        notes=tuple(notes),
        secrets=options.config.secrets() if options.config is not None else frozenset(),
    )


@attrs.frozen
class _Written:
    """What the materialised rows are."""

    keys: NumberSet
    agents: set[str]
    growth: str | None = None  # what a run that is resumed with more rows says


def _has_rows(path: pathlib.Path) -> bool:
    try:
        return path.stat().st_size > 0
    except FileNotFoundError:
        return False


def _make_way(files: RunFiles) -> list[str]:
    """Begin afresh: results of an earlier run are kept under another name, what was made from them is removed."""
    moved = []
    rows = (files.failures, files.output)
    endings = (f".old{number}" for number in itertools.chain([""], itertools.count(2)))
    ending = next(one for one in endings if not any(path.with_name(path.name + one).exists() for path in rows))
    for path in rows:
        if _has_rows(path):
            kept = path.with_name(path.name + ending)
            path.replace(kept)
            moved.append(f"{path}: an earlier run's rows are now in {kept.name}")
    derived = (files.identity, files.materialized, files.aggregate, files.timing, files.quality, files.verdicts)
    for path in (files.output, files.failures, *derived):
        path.unlink(missing_ok=True)
    return moved


def _write_rows(
    files: RunFiles, materializer: Materializer, options: RunOptions, stored: dict[str, Any] | None
) -> _Written:
    """Write the materialised rows, and beside them what they are; both appear whole or not at all."""
    digest, keys, agents = RowsDigest(each=stored is not None), array("Q"), set[str]()
    growth = None
    with replacing(files.materialized, fsync=options.fsync) as file:
        for row in materializer:
            line = dump_line(row)
            file.write(line)
            digest.add(line)
            keys.append(pack(row[TASK], row[ROLLOUT]))
            _note_agent(row, agents)
        if not digest.rows:
            raise UsageError(f"no row is left to run ({_why_empty(options)})")
        identity = identity_of(options, digest.text(), digest.rows, sorted(agents))
        if stored is not None:
            growth = check_identity(files, stored, identity, digest)
    # After the rows: a run that is killed between the two has run no row that its identity does not know.
    if stored is None or growth is not None:
        write_identity(files, identity, fsync=options.fsync)
    return _Written(NumberSet(keys).distinct(), agents, growth)


def _why_empty(options: RunOptions) -> str:
    if options.shard is None:
        return "check --limit and num_repeats"
    number, count = options.shard
    return f"shard {number or count}/{count} has no task"


def _without_repeated(path: pathlib.Path) -> list[str]:
    """Take out rows that are there twice, which would be sent twice; what there is to tell of them."""
    repeated = RepeatedLines()
    for _, row in read_jsonl(path):
        repeated.note(row)
    found = repeated.find([path])
    if found:
        lines = {repetition.line for repetition in found}
        write_rows(path, (row for number, row in read_jsonl(path) if number not in lines))
    return told(found)


def _survey(path: pathlib.Path) -> _Written:
    """The same from materialised rows that are there already."""
    keys, agents = array("Q"), set[str]()
    for number, row in read_jsonl(path):
        key = key_of(row, source=str(path), line=number)
        if key is None:
            raise UsageError(f"{path}:{number}: has no {TASK} and {ROLLOUT}, so this run cannot be resumed")
        keys.append(key)
        _note_agent(row, agents)
    return _Written(NumberSet(keys).distinct(), agents)


def _note_agent(row: dict[str, Any], agents: set[str]) -> None:
    reference = row.get(AGENT_REF)
    if isinstance(reference, dict) and isinstance(reference.get("name"), str):
        agents.add(reference["name"])
