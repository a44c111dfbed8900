"""The rules of environments that judge a text, at their edges."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gym_trio.environments import arc_agi, calendar, graphwalks, hotpotqa_qa, string_match
from gym_trio.environments._surface_forms import surface_forms, unreliable
from gym_trio.errors import ConfigError, RequestRefused


@pytest.mark.parametrize(
    ("text", "grid"),
    [
        ("\\boxed{[[1, 2], [3, 4]]}", [[1, 2], [3, 4]]),
        ("\\boxed{[[1],\n [2]]} and \\boxed{[[9]]}", [[1], [2]]),
        ("[[5, 6]] then \\boxed{[[1]]}", [[1]]),
        ("no box: [[5, 6]]", [[5, 6]]),
        ("\\boxed{ [[7]] }", [[7]]),
        ("\\boxed{[[1,,2]]}", None),
        ("\\boxed{[[]]}", None),
        ("\\boxed{[[1.5]]}", None),
        ("\\boxed{42}", None),
        ("", None),
    ],
)
def test_a_grid_is_the_first_box_that_is_one(text: str, grid: Any) -> None:
    """Boxes come before bare lists, blanks do not matter, and what is no grid of whole numbers is none."""
    assert arc_agi.parse_grid(text) == grid


async def test_a_grid_may_stand_in_several_parts(judge: Any, saying: Any) -> None:
    """All texts of the assistant count, and nothing else."""
    row = {"expected_output": [[1]]}
    found = await judge("arc_agi", row, {"type": "reasoning", "summary": []}, saying("first", "\\boxed{[[1]]}"))
    assert found == {"reward": 1.0, "predicted_output": [[1]], "extraction_successful": True}
    assert (await judge("arc_agi", row))["extraction_successful"] is False


@pytest.mark.parametrize(
    ("line", "nodes"),
    [
        ("Final Answer: [a, b]", ["a", "b"]),
        ("So: Final Answer:[ a ,, b ].", ["a", "b"]),
        ("Final Answer: []", []),
        ("Final Answer: [a]\n\n  \n", ["a"]),
        ("Final Answer: [x[1]]", ["x[1]"]),
        ("Final Answer: a, b", None),
        ("final answer: [a]", None),
        ("Final Answer: [a]\nThat is all.", None),
        ("", None),
    ],
)
def test_nodes_are_in_the_last_line(line: str, nodes: Any) -> None:
    """Only the last line that is not blank counts, and only in its form."""
    assert graphwalks.named_nodes(line) == nodes


@pytest.mark.parametrize(
    ("answer", "expected", "reward"),
    [
        ("Final Answer: [a, b]", '["b", "a"]', 1.0),
        ("Final Answer: [a]", '["a", "b"]', 2 / 3),
        ("Final Answer: [c]", '["a"]', 0.0),
        ("Final Answer: []", "[]", 1.0),
        ("Final Answer: [a]", "[]", 0.0),
        ("I do not know", "[]", 0.0),
        ("Final Answer: []", "no list", 1.0),
    ],
)
async def test_the_reward_is_the_f1_of_two_sets(
    judge: Any, saying: Any, answer: str, expected: str, reward: float
) -> None:
    """Order and repetition do not matter; no answer is not an empty answer."""
    found = await judge("graphwalks", {"expected_answer": expected}, saying(answer))
    assert found["reward"] == pytest.approx(reward)


@pytest.mark.parametrize(
    ("text", "reward"),
    [
        ("abcThe gate is open.", 1.0),
        ("  abcThe gate is open.\n", 1.0),
        ("The gate is open.", 0.0),
        ("abc", 0.0),
        ("abcThe gate is shut.", pytest.approx(0.8, abs=0.1)),
        ("ABCThe gate is open.", 0.0),
    ],
)
async def test_a_passage_needs_its_prefix(judge: Any, saying: Any, text: str, reward: Any) -> None:
    """Without the prefix nothing is earned; with it, how similar the rest is."""
    row = {"expected_answer": "abcThe gate is open.", "random_string_to_prepend": "abc"}
    assert (await judge("mrcr", row, saying(text)))["reward"] == reward


@pytest.mark.parametrize(
    ("rule", "text", "reward"),
    [
        ("exact", "  The GATE\n is open ", 1.0),
        ("exact", "The gate is open.", 0.0),
        ("seq_match", "the gate is open", 1.0),
        ("seq_match", "", 0.0),
        ("weighted_seq_match", "the gate is open", 1.0),
        ("weighted_seq_match", "xxxxxxxxxx is open", pytest.approx(0.43, abs=0.1)),
    ],
)
async def test_equivalence_is_by_the_blocks_rule(judge: Any, saying: Any, rule: str, text: str, reward: Any) -> None:
    """Blanks and case never matter; the rule says what else does."""
    row = {"expected_answer": "The gate is open"}
    found = await judge("equivalence_rule", row, saying(text), config={"grading_rule": rule})
    assert found["reward"] == found["equivalence_score"] == reward


def test_a_rule_that_there_is_not(environment_class: Any) -> None:
    """A block that names an unknown grading rule is refused when it is loaded."""
    with pytest.raises(ConfigError, match="exactly"):
        environment_class("equivalence_rule")(name="x", config={"grading_rule": "exactly"})


@pytest.mark.parametrize(
    ("mode", "text", "answer"),
    [
        ("boxed", "\\boxed{a} \\boxed{\\text{ b }}", "b"),
        ("boxed", "\\boxed{\\frac{1}{2}}", "\\frac{1}{2}"),
        ("boxed", "\\boxed{good} \\boxed{never closed", "good"),
        ("boxed", "nothing", None),
        ("final_answer", "Answer: no\nFinal answer: yes.", "yes"),
        ("final_answer", "ANSWER：ja", "ja"),
        ("final_answer", "only \\boxed{7}", "7"),
        ("final_answer", "nothing", None),
        ("last_line", "a\n b \n\n", "b"),
        ("last_line", " \n", None),
        ("full_response", "  all of it ", "all of it"),
        ("full_response", "   ", None),
    ],
)
def test_where_the_answer_is(mode: str, text: str, answer: str | None) -> None:
    """Each mode takes the last that has its form."""
    assert string_match.extract(text, mode) == answer


@pytest.mark.parametrize(
    ("answer", "expected", "reward"),
    [
        ("oslo!", "Oslo", 1.0),
        ('"Oslo"', "'oslo'", 1.0),
        ("7.0", "7", 1.0),
        ("1,234", "1234", 1.0),
        ("$1,234", "1234", 0.98),
        ("12.5\\%", "12.5", 1.0),
        ("\\mathrm{x}", "x", 1.0),
        ("\\text{never closed", "never closed", 1.0),
        ("red; green, blue", "red, green, blue", 1.0),
        ("California", "CA", 1.0),
        ("5 m", "5", 0.98),
        ("x°", "x", 1.0),
        ("x²", "x2", 1.0),
        ("ﬁne", "fine", 1.0),
        ("100.4", "100", 0.98),
        ("103", "100", 0.0),
        ("Bergen", "Oslo", 0.0),
        ("", "Oslo", 0.0),
        ("π", "\\pi", 1.0),
    ],
)
def test_even_forms_of_an_answer(answer: str, expected: str, reward: float) -> None:
    """What differs only in writing agrees; a number within about a per cent nearly does."""
    assert string_match.grade(answer, expected) == reward


async def test_strings_that_must_be_the_same(judge: Any, saying: Any) -> None:
    """With ``case_sensitive`` nothing but blanks around is evened out; an unknown mode is the row's mistake."""
    row = {"expected_answer": "Ag", "extraction_mode": "full_response", "case_sensitive": True}
    assert (await judge("string_match", row, saying(" Ag ")))["reward"] == 1.0
    assert (await judge("string_match", row, saying("ag")))["reward"] == 0.0
    assert (await judge("string_match", {**row, "expected_answer": ""}, saying("ag")))["reward"] == 0.0
    assert (await judge("string_match", row))["extracted_answer"] is None
    with pytest.raises(RequestRefused, match="extraction_mode"):
        await judge("string_match", {**row, "extraction_mode": "middle"}, saying("Ag"))


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ('{"answer": "a"} or rather {"answer": "b"}', "b"),
        ('```json\n{"answer": "fenced"}\n``` {"answer": "bare"}', "fenced"),
        ('{"think": {"x": 1}} {"answer": 7}', "7"),
        ('{"answer": "a"} {"other": "b"}', "a"),
        ('{ open {"answer": "lost"}', '{ open {"answer": "lost"}'),
        ('} {"answer": "after a stray brace"}', "after a stray brace"),
        ("plain text", "plain text"),
        ('{"answer": null}', "None"),
        ("", ""),
    ],
)
def test_the_answer_of_an_object(text: str, answer: str) -> None:
    """The last object with an answer counts, those in fences first; without one the text itself."""
    assert hotpotqa_qa.answer_in(text) == answer


@pytest.mark.parametrize(
    ("answer", "forms"),
    [
        ("The Beatles", {"The Beatles", "Beatles"}),
        ("the a team", {"the a team", "a team", "team"}),
        ("Rock & Roll", {"Rock & Roll", "Rock and Roll"}),
        ("John (the Elder)", {"John (the Elder)", "John", "the Elder", "Elder"}),
        ("four", {"four", "4"}),
        ("1,234,567", {"1,234,567", "1234567"}),
        ("U.S.A.", {"U.S.A.", "U.S.A", "USA"}),
        ("Jean-Luc", {"Jean-Luc", "Jean Luc"}),
        ("“Emma”", {"“Emma”", "Emma"}),
        ("no", {"no"}),
    ],
)
def test_surface_forms(answer: str, forms: set[str]) -> None:
    """An answer's other ways of being written."""
    assert set(surface_forms(answer)) == forms


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ("Oslo", ""),
        ("x" * 41, "gt_too_long"),
        ("Ana Maria Prieto", "multi_word_name"),
        ("king of Norway", ""),
        ("The Old Man of the Sea", "multi_word_name"),
        ("", ""),
    ],
)
def test_answers_that_cannot_be_searched_for(answer: str, reason: str) -> None:
    """Long answers and names of several words."""
    assert unreliable(answer) == reason


@pytest.mark.parametrize(
    ("answer", "expected", "strict", "lenient"),
    [
        ("It is Oslo.", "Oslo", True, True),
        ("yesterday", "yes", False, True),
        ("yes", "yes", True, True),
        ("x" * 50 + " Lisbon " + "y" * 40, "Lisbon", False, True),
        ("Lisbon, " + "y" * 80, "Lisbon", True, True),
        ("Jean‑Luc", "jean-luc", True, True),
        ("Bergen", "Oslo", False, False),
        ("", "Oslo", False, False),
    ],
)
def test_naming_an_answer(answer: str, expected: str, strict: bool, lenient: bool) -> None:
    """Strictly, short forms are words and long answers name it early."""
    forms = surface_forms(expected)
    assert hotpotqa_qa.is_named_strictly(forms, answer) is strict
    assert hotpotqa_qa.is_named(forms, answer) is lenient


def test_token_overlap() -> None:
    """Articles and punctuation do not count; yes and no agree with themselves alone."""
    assert hotpotqa_qa.f1_of("the old mill", "Old mill!") == 1.0
    assert hotpotqa_qa.f1_of("old mill", "old house") == 0.5
    assert hotpotqa_qa.f1_of("yes", "yes indeed") == 0.0
    assert hotpotqa_qa.f1_of("no", "no") == 1.0
    assert hotpotqa_qa.f1_of("", "x") == 0.0


async def test_metrics_of_questions_leave_out_what_cannot_be_searched_for(
    environment_class: Any, judge: Any, saying: Any
) -> None:
    """There are metrics of all tasks and of those with a searchable answer; a task without a verdict has its answer."""
    environment = environment_class("hotpotqa_qa")(name="x", config={})
    good = await judge("hotpotqa_qa", {"expected_answer": "Oslo"}, saying('{"answer": "Oslo"}'))
    bad = await judge("hotpotqa_qa", {"expected_answer": "Ana Maria Prieto"}, saying("no idea"))
    found = environment.compute_metrics([[good], [bad], [{"reward": 0.0, "expected_answer": "x" * 50}]])
    assert (found["filtered_num_tasks"], found["unfiltered_num_tasks"]) == (1, 3)
    assert found["pass@1/is_correct_strict"] == 50
    assert found["filtered_pass@1/is_correct_strict"] == 100
    key = environment.get_key_metrics({**found, "mean/input_tokens": 3})
    assert key["filtered_pass@1/is_correct_strict"] == 100
    assert key["mean/input_tokens"] == 3
    plain = environment_class("hotpotqa_qa")(name="x", config={"report_filtered_metrics": False})
    assert not any("filtered" in name for name in plain.compute_metrics([[good]]))


@pytest.mark.parametrize(("name", "field"), [("graphwalks", "problem_type"), ("mrcr", "n_needles")])
def test_metrics_by_kind_of_task(environment_class: Any, name: str, field: str) -> None:
    """pass@k is given for all tasks and for each kind, and the headline has the largest k."""
    environment = environment_class(name)(name="x", config={})
    tasks = [[{"reward": 1.0, field: "a"}, {"reward": 0.5, field: "a"}], [{"reward": 0.0, field: "b"}] * 2]
    found = environment.compute_metrics(tasks)
    assert found[f"{field}=a/pass@2/accuracy"] == 100
    assert environment.get_key_metrics(found)["pass@2/accuracy"] == 50


@pytest.mark.parametrize(
    ("time", "minutes"),
    [("9am", 540), ("12am", 0), ("12pm", 720), ("12:30pm", 750), (" 2:15pm ", 855), ("14:05", 845), ("00:00", 0)],
)
def test_times_of_day(time: str, minutes: int) -> None:
    """Both ways of writing a time."""
    assert calendar.minutes_of(time) == minutes


@pytest.mark.parametrize("time", ["noon", "9", "9:30:00", "xam", ""])
def test_what_is_no_time(time: str) -> None:
    """Is a `ValueError`."""
    with pytest.raises(ValueError, match=r"."):
        calendar.minutes_of(time)


def plan(*events: tuple[int, str, int]) -> str:
    return json.dumps([{"event_id": number, "start_time": start, "duration": d} for number, start, d in events])


def wish(duration: int = 60, constraint: str | None = None) -> dict[str, Any]:
    return {"duration": duration, "constraint": constraint, "min_time": "09:00", "max_time": "17:00"}


@pytest.mark.parametrize(
    ("answer", "expected", "reason"),
    [
        (plan((0, "10:00", 60)), {"0": wish()}, None),
        (f"Here: {plan((0, '10am', 60))} Good?", {"0": wish(60, "at 10am")}, None),
        (plan((0, "09:00", 60), (1, "10:00", 30)), {"0": wish(60, "before 10am"), "1": wish(30, "after 10am")}, None),
        (plan((0, "11:00", 60)), {"0": wish(60, "between 11am and 12pm")}, None),
        (plan((0, "11:30", 60)), {"0": wish(60, "between 11am and 12pm")}, "constraint_violated"),
        (plan((0, "08:30", 60)), {"0": wish()}, "constraint_violated"),
        (plan((0, "16:30", 60)), {"0": wish()}, "constraint_violated"),
        (plan((0, "10:00", 30)), {"0": wish()}, "constraint_violated"),
        (plan((0, "09:00", 60)), {"0": wish(60, "after 10am")}, "constraint_violated"),
        (plan((0, "10:00", 60)), {"0": wish(60, "whenever")}, None),
        (plan((0, "10:00", 60), (1, "10:30", 60)), {"0": wish(), "1": wish()}, "conflicting_events"),
        (plan((0, "10:00", 60)), {"0": wish(), "1": wish()}, "different_number_of_events"),
        (plan((5, "10:00", 60)), {"0": wish()}, "error_in_grading"),
        (plan((0, "ten", 60)), {"0": wish()}, "error_in_grading"),
        (plan((0, "10:00", 60)), {"0": wish(60, "between 9am")}, "error_in_grading"),
        ("I am sorry.", {"0": wish()}, "no_json_list"),
        ("[{broken}]", {"0": wish()}, "no_json_list"),
        ("Hello!", {}, None),
        ("<think>hm</think> Hello!", {}, "think_found"),
        ("", {}, "no_text"),
    ],
)
def test_a_calendar_is_right_or_says_why_not(answer: str, expected: Any, reason: str | None) -> None:
    """Number, overlap, duration, window and constraint are all judged."""
    assert calendar.grade(answer, expected) == reason


async def test_only_the_last_item_holds_the_calendar(judge: Any, saying: Any) -> None:
    """An answer before a final reasoning or tool call is not the last word."""
    row = {"exp_cal_state": {"0": wish()}}
    good = saying(plan((0, "10:00", 60)))
    assert (await judge("calendar", row, saying("earlier"), good))["reward"] == 1.0
    assert (await judge("calendar", row, good, {"type": "reasoning", "summary": []}))["reward"] == 0.0
    assert (await judge("calendar", row, {"type": "message", "content": good["content"][0]["text"]}))["reward"] == 1.0
    assert (await judge("calendar", row))["grading_reason"] == "no_text"
