"""The generated rows of RULER and RULER 2: of every kind, and each with the answer that its text has."""

from __future__ import annotations

import collections
import json
import re
from typing import Any

import pytest

from gym_trio.config import InvalidSetting
from gym_trio.environments._ruler2_tasks import KINDS as KINDS2
from gym_trio.environments._ruler_tasks import KINDS
from gym_trio.errors import ConfigError

SIZES = [40, 800, 20_000]


def prompt_of(row: dict[str, Any]) -> str:
    return str(row["responses_create_params"]["input"][0]["content"])


def rows_of(environment_class: Any, name: str, **config: Any) -> list[dict[str, Any]]:
    return list(environment_class(name).rows(config))


def test_every_kind_has_five_rows_and_no_two_are_alike(environment_class: Any) -> None:
    """Thirteen kinds, and twelve; the same rows for the same seed and others for another."""
    for name, key, kinds in (("ruler", "subset", KINDS), ("ruler2", "task", KINDS2)):
        rows = rows_of(environment_class, name)
        assert collections.Counter(row[key] for row in rows) == dict.fromkeys(kinds, 5)
        assert len({prompt_of(row) for row in rows}) == len(rows)
        assert rows_of(environment_class, name, seed=2) != rows
    assert (len(KINDS), len(KINDS2)) == (13, 12)


@pytest.mark.parametrize("words", SIZES)
@pytest.mark.parametrize(("name", "kinds"), [("ruler", KINDS), ("ruler2", KINDS2)])
def test_a_text_is_about_as_long_as_asked(environment_class: Any, name: str, kinds: Any, words: int) -> None:
    """Within a quarter, but where so few words cannot hold the task."""
    for row in rows_of(environment_class, name, words=words, size=len(kinds)):
        assert row["length"] == len(prompt_of(row).split())
        assert row["length"] > words * 0.75, row
        assert row["length"] < words * 1.3 + 250, row


@pytest.mark.parametrize("words", SIZES)
def test_the_needles_hold_the_answers(environment_class: Any, words: int) -> None:
    """Every value asked for is in the text under its key, and under no other."""
    for row in rows_of(environment_class, "ruler", words=words, size=130):
        if not row["subset"].startswith("niah"):
            continue
        text, _, question = prompt_of(row).rpartition("\n\n")
        values = collections.defaultdict(list)
        for key, value in re.findall(r"magic values for (\S+) is ([\w-]+)\.", text):
            values[key].append(value)
        asked = question.removesuffix(" in the text?").rpartition(" for ")[2].split(", ")
        assert sorted(one for key in asked for one in values[key]) == sorted(row["outputs"])
        assert len(row["outputs"]) == (4 if row["subset"] in ("niah_multivalue", "niah_multiquery") else 1)


def test_counted_words_are_the_most_common_by_far(environment_class: Any) -> None:
    """The ten and the three words that are wanted come up more often than any other, whatever the length."""
    for words in SIZES:
        for row in rows_of(environment_class, "ruler", words=words, size=10, subsets=["cwe", "fwe"]):
            listed = prompt_of(row).split("\n\n")[1].split()
            counts = collections.Counter(word for word in listed if not re.fullmatch(r"\d+\.|\.\.\.", word))
            top = [word for word, _ in counts.most_common(len(row["outputs"]))]
            assert sorted(top) == sorted(row["outputs"]), row["subset"]
            least, next_one = counts.most_common(len(top) + 1)[-2:]
            assert least[1] > next_one[1]


def test_variables_are_a_chain(environment_class: Any) -> None:
    """Four steps lead from the value through all five names."""
    for row in rows_of(environment_class, "ruler", size=5, subsets=["vt"]):
        text = prompt_of(row)
        [first] = re.findall(r"VAR ([A-Z]+) = \d+\.", text)
        following = {b: a for a, b in re.findall(r"VAR ([A-Z]+) = VAR ([A-Z]+)\.", text)}
        chain = [first]
        while chain[-1] in following:
            chain.append(following[chain[-1]])
        assert chain == row["outputs"]
        assert len(chain) == 5


@pytest.mark.parametrize("words", SIZES)
def test_questions_are_answered_by_one_town_alone(environment_class: Any, words: int) -> None:
    """The town that is asked for is in one document, its founder in another, and the answer with them."""
    rows = rows_of(environment_class, "ruler", words=words, size=20, subsets=["qa_1", "qa_2"])
    rows += [row for row in rows_of(environment_class, "ruler2", words=words, size=24) if row["task"][:2] == "qa"]
    for row in rows:
        documents, _, question = prompt_of(row).rpartition("Question: ")
        [asked] = [town for town in re.findall(r":\n([A-Z][a-z]+) lies", documents) if town in question]
        [town] = re.findall(rf"{asked} lies on .*", documents)
        [founder] = re.findall(r"by (\w+ \w\. \w+) and", town)
        [person] = re.findall(rf"{re.escape(founder)}, born in .*", documents)
        source = person if "the founder of" in question or "who founded" in question else town
        answers = row.get("outputs") or row["expected_answer"]
        assert any(answer in source for answer in answers)
        assert not any(answer in question for answer in answers)


async def test_every_row_of_ruler_2_rewards_its_own_answer(environment_class: Any, judge: Any, saying: Any) -> None:
    """By the rule that its kind has, with the letter of the sum's own result, and nothing for a shrug."""
    results = {"plus": int.__add__, "minus": int.__sub__, "times": int.__mul__}
    for row in rows_of(environment_class, "ruler2"):
        expected = row["expected_answer"]
        if row["eval_type"] == "multichoice":
            key = re.findall(r"the question of ([a-z-]+) with", prompt_of(row))
            pattern = rf"of {key[0]}: (What .*?\?)" if key else r"reads '(What .*?\?)'"
            asked = re.search(pattern, prompt_of(row))
            assert asked is not None
            [line] = [line for line in prompt_of(row).splitlines() if f"{asked[1]} (A)" in line]
            a, sign, b = re.search(r"What is (\d+) (\w+) (\d+)", line).groups()  # type: ignore[union-attr]
            assert f"({expected}) {results[sign](int(a), int(b))}" in line
            said = f"\\boxed{{{expected}}}"
        else:
            said = "It is:\n\n" + ", ".join(expected)
        assert (await judge("ruler2", row, saying(said)))["reward"] == 1.0, row["task"]
        assert (await judge("ruler2", row, saying("I cannot say")))["reward"] < 0.5


def test_kinds_can_be_chosen(environment_class: Any) -> None:
    """One that there is not is named, with the nearest."""
    assert {row["subset"] for row in rows_of(environment_class, "ruler", subsets=["vt"], size=3)} == {"vt"}
    for wrong in (["niah_singel_1"], []):
        with pytest.raises((ConfigError, InvalidSetting), match="subsets"):
            rows_of(environment_class, "ruler", subsets=wrong)


async def test_questions_about_towns_are_answered_through_two_documents(
    environment_class: Any, judge: Any, saying: Any
) -> None:
    """The generated rows of hotpotqa_qa reward their own answer, which only the founder's document has."""
    rows = [row for row in rows_of(environment_class, "hotpotqa_qa") if row["id"].startswith("towns")]
    assert len({row["question"] for row in rows}) == len(rows) > 40
    for row in rows:
        assert row["expected_answer"] in prompt_of(row)
        assert row["expected_answer"] not in row["question"]
        said = json.dumps({"answer": row["expected_answer"]})
        assert (await judge("hotpotqa_qa", row, saying(said)))["reward"] == 1.0
        assert (await judge("hotpotqa_qa", row, saying('{"answer": "nobody knows"}')))["reward"] == 0.0
