"""Aggregate metrics read entry by entry."""

from __future__ import annotations

import io
import json
import pathlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gym_trio.collection import _entries, aggregate_files, compare_files
from gym_trio.collection._entries import _Reader, read_entries
from gym_trio.errors import UsageError

NUMBERS = st.integers(-(10**20), 10**20) | st.floats(allow_nan=False, allow_infinity=False)
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=12,
)
ENTRIES = st.lists(
    st.fixed_dictionaries({"a": VALUES, "group_level_metrics": st.lists(VALUES, max_size=4), "é\n": VALUES}), max_size=3
)


@settings(max_examples=150, deadline=None)
@given(entries=ENTRIES, indent=st.none() | st.integers(0, 3), ascii_only=st.booleans(), block=st.integers(1, 40))
def test_what_is_read_is_what_was_written(tmp_path_factory, entries, indent, ascii_only, block):
    """In whatever form, and however the file falls into blocks; the tasks can be gone through again."""
    path = tmp_path_factory.getbasetemp() / "aggregate.json"
    path.write_text(json.dumps(entries, indent=indent, ensure_ascii=ascii_only))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_entries, "_BLOCK", block)
        found = read_entries(path)
        for _ in range(2):
            assert [{**e, "group_level_metrics": list(e["group_level_metrics"])} for e in found] == entries


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (b"", "Expecting value at line 1"),
        (b'[\n{"a": 1}\n', "Expecting ',' at line 3"),
        (b'[{"a": 1}\n{', "Expecting ',' at line 2"),
        (b'[{"a" 1}]', "Expecting ':' at line 1"),
        (b"[{1: 1}]", "Expecting a name in double quotes at line 1"),
        (b'[{"group_level_metrics":\n[{}, {"x": tru}]}]', "Expecting value at line 2"),
        (b'[{"a": "never ends}]', "Unterminated string starting at at line 1"),
        (b"[]\n[]", "Extra data at line 2"),
        (b'[{"a": "\xff"}]', "it is not UTF-8: invalid start byte"),
        (b'[{"a": ' + b"1" * 5000 + b"}]", "digit"),
        (b'[{"a": ' + b"[" * 200_000, "recursion"),
    ],
)
def test_what_is_not_json_is_named_with_its_line(tmp_path, text, says):
    """In one line, whatever is wrong with it."""
    path = tmp_path / "aggregate.json"
    path.write_bytes(text)
    with pytest.raises(UsageError) as caught:
        read_entries(path)
    assert str(caught.value).startswith(f"{path}: is not JSON (")
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_no_more_is_read_than_is_needed(monkeypatch):
    """Of a list the reader has one value at hand, and not more of the text than a block beside it."""
    monkeypatch.setattr(_entries, "_BLOCK", 64)
    file = io.BytesIO(json.dumps([{"n": n} for n in range(1000)]).encode())
    reader = _Reader(file, pathlib.Path("aggregate.json"))
    for number, _ in enumerate(reader.items()):
        assert reader.value() == {"n": number}
        assert file.tell() - reader.offset() <= 128
    assert number == 999


def test_a_comparison_of_files_is_that_of_their_rows(put, tmp_path):
    """The aggregate that was written, the same indented, and the rows themselves."""
    runs = []
    for name, shift in (("a", 0), ("b", 1)):
        rows = [
            {"_ng_task_index": t, "_ng_rollout_index": r, "reward": float((t * (r + shift)) % 4 < 2), "é": t / 7}
            for t in range(9)
            for r in range(3)
        ]
        runs.append(put(f"{name}/r.jsonl", rows))
    from_rows = compare_files(*runs).comparison
    for run in runs:
        aggregate_files(str(run), output=run)
    assert compare_files(*runs).comparison == from_rows
    for run in runs:
        written = run.with_name("r_aggregate_metrics.json")
        written.write_text(json.dumps(json.loads(written.read_text()), indent=4))
    assert compare_files(*runs).comparison == from_rows
    assert from_rows.comparisons[0].flips.flips
