"""Rollout ids, and the rows of next attempts."""

from __future__ import annotations

import pytest

from gym_trio.errors import RowError
from gym_trio.rollouts import next_attempt, rollout_id


@pytest.mark.parametrize(
    ("row", "name"),
    [
        ({}, "7-0"),
        ({"_ng_task_index": 3}, "7-0"),
        ({"_ng_task_index": 3, "_ng_rollout_index": 1}, "3-1"),
        ({"_ng_task_index": 3, "_ng_rollout_index": 1, "_ng_attempt_index": 0}, "3-1"),
        ({"_ng_task_index": 3, "_ng_rollout_index": 1, "_ng_attempt_index": 2}, "3-1-a2"),
        ({"_ng_rollout_id": "mine.1_x"}, "mine.1_x"),
        ({"_ng_rollout_id": "mine", "_ng_attempt_index": 1}, "mine-a1"),
        ({"_ng_rollout_id": "mine-a1", "_ng_attempt_index": 1}, "mine-a1"),
        ({"_ng_rollout_id": "mine-a0"}, "mine-a0"),
        ({"_ng_rollout_id": None, "_ng_attempt_index": None}, "7-0"),
    ],
)
def test_the_id_comes_from_the_row_and_else_from_its_place(row: dict[str, object], name: str) -> None:
    """A given id is kept, indices make one, and a row without either is named by its position."""
    assert rollout_id(row, 7) == name


@pytest.mark.parametrize(
    "row",
    [
        {"_ng_rollout_id": ""},
        {"_ng_rollout_id": "-x"},
        {"_ng_rollout_id": "a b"},
        {"_ng_rollout_id": "a\n"},
        {"_ng_rollout_id": 5},
        {"_ng_rollout_id": "mine-a1"},
        {"_ng_rollout_id": "mine-a01"},
        {"_ng_rollout_id": "mine-a2", "_ng_attempt_index": 1},
        {"_ng_task_index": -1, "_ng_rollout_index": 0},
        {"_ng_task_index": "a/b", "_ng_rollout_index": 0},
        {"_ng_attempt_index": -1},
        {"_ng_attempt_index": True},
        {"_ng_attempt_index": "1"},
    ],
)
def test_an_id_that_could_be_mistaken_is_refused(row: dict[str, object]) -> None:
    """Ids outside the pattern, or that end like another rollout's attempt, are row errors that name the row."""
    with pytest.raises(RowError, match="row 8"):
        rollout_id(row, 7)


def test_next_attempts_keep_the_base_id() -> None:
    """Each next attempt of an outcome's row has the first id plus its own suffix, wherever it is pulled."""
    row = {"i": 1, "_ng_rollout_id": "4-0"}
    second = next_attempt(row)
    assert row == {"i": 1, "_ng_rollout_id": "4-0"}
    assert rollout_id(second, 99) == "4-0-a1"
    seen = {**second, "_ng_rollout_id": "4-0-a1"}  # as the outcome of the second attempt has it
    third = next_attempt(seen)
    assert rollout_id(third, 0) == "4-0-a2"
    assert third["_ng_attempt_index"] == 2


def test_next_attempt_of_indexed_rows() -> None:
    """A row with indices and no id goes by its indices."""
    again = next_attempt({"_ng_task_index": 3, "_ng_rollout_index": 1})
    assert rollout_id(again, 0) == "3-1-a1"
    assert rollout_id(next_attempt(again), 0) == "3-1-a2"
