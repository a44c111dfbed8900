"""Procedural reasoning tasks from the ``reasoning_gym`` package, with its own scorers."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import attrs

from ..config import positive_int, structure, suggestion
from ..errors import ConfigError, MissingExtraError, RequestRefused
from ..servers import COMMON_KEYS, RequestBody, ResourcesServer, Session, output_text

__all__ = ["EXCLUDED", "MIXES", "ReasoningGym", "ReasoningGymSettings"]

_JUNK = "its scorer gives more than zero for an answer that is none"
_RAISES = "its scorer raises on an answer that is not in its form"
_HASHES = "its rows change with the interpreter's hash seed, so the same seed does not give the same rows"

# Generators of reasoning_gym 0.1.25 that are not offered, and why. What counts as junk: nothing, blanks, prose that
# does not answer, empty containers, "None", "null", "nan". (The default scorer's credit for a long answer that
# contains the right one is that package's rule and stays.)
EXCLUDED: Mapping[str, str] = MappingProxyType(
    {
        **dict.fromkeys(
            [
                "ab",
                "acre",
                "advanced_geometry",
                "arc_agi",
                "boxnet",
                "codeio",
                "color_cube_rotation",
                "complex_arithmetic",
                "countdown",
                "emoji_mystery",
                "figlet_font",
                "fraction_simplification",
                "game_of_life_halting",
                "graph_color",
                "group_anagrams",
                "jugs",
                "letter_jumble",
                "list_functions",
                "palindrome_generation",
                "power_function",
                "propositional_logic",
                "puzzle24",
                "rearc",
                "rubiks_cube",
                "rush_hour",
                "sentence_reordering",
                "spell_backward",
                "syllogism",
                "tower_of_hanoi",
                "tsumego",
            ],
            _JUNK,
        ),
        **dict.fromkeys(["game_of_life", "prime_factorization"], _RAISES),
        **dict.fromkeys(["isomorphic_strings", "knight_swap", "polynomial_multiplication", "ransom_note"], _HASHES),
        "gsm_symbolic": "its rows hold fractions, which JSON cannot carry",
        "composite": "it is a mix of the others; name them as a mix here",
    }
)

# Named mixes: generator → its options. Rows take the generators in turn.
MIXES: Mapping[str, Mapping[str, Mapping[str, Any]]] = MappingProxyType(
    {
        "one_digit_sums": {"chain_sum": {"min_terms": 2, "max_terms": 2, "min_digits": 1, "max_digits": 1}},
        "arithmetic": {
            name: {} for name in ("basic_arithmetic", "chain_sum", "gcd", "lcm", "leg_counting", "products")
        },
        "algorithms": {
            name: {}
            for name in ("base_conversion", "binary_matrix", "letter_counting", "number_sorting", "word_sorting")
        },
        "logic": {name: {} for name in ("aiw", "knights_knaves", "self_reference", "zebra_puzzles")},
    }
)

_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")


@attrs.frozen(kw_only=True)
class ReasoningGymSettings:
    """The keys of a ``reasoning_gym`` block besides the common ones.

    ``tasks`` is a generator's name, a mix's name, or a list of generators; ``options`` are the generator's own, for a
    single one. The same ``seed`` gives the same rows.
    """

    tasks: str | list[str] = "one_digit_sums"
    options: dict[str, Any] = attrs.field(factory=dict)
    size: int = attrs.field(default=100, validator=positive_int)
    seed: int = 1


class ReasoningGym(ResourcesServer):
    r"""Tasks of the ``reasoning_gym`` package. The reward is the generator's own ``score_answer``, from 0 to 1.

    A row has ``question``, ``answer`` and ``metadata`` with ``source_dataset``, as that package makes them. What is
    scored is the text inside the last ``<answer>`` tag, or without one the whole text of the response. A row with
    ``extraction_mode: number`` (those of the built-in mix for small models) scores the last number in the text.

    Source of the rule: NeMo Gym's ``reasoning_gym``.
    """

    description = "Procedural reasoning tasks with exact scorers (package reasoning_gym)"
    domain = "math"
    settings_type = ReasoningGymSettings

    @classmethod
    def rows(cls, config: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        """``size`` rows, the generators in turn. **Errors**: `ConfigError` for a generator that is not offered."""
        settings = structure(ReasoningGymSettings, config, key="reasoning_gym", ignore=COMMON_KEYS)
        return _rows(settings, _generators(settings))

    async def verify(self, session: Session, request: RequestBody) -> float:
        entry = {key: request.get(key) for key in ("question", "answer", "metadata")}
        source = (entry["metadata"] or {}).get("source_dataset")
        if not isinstance(source, str):
            raise RequestRefused(422, "the row has no metadata.source_dataset, which says how to score it")
        answer = extract(output_text(request.response), request.get("extraction_mode"))
        # Some scorers search or evaluate for a while: the loop must not wait for them.
        return float(await self.in_thread(_score, source, answer, entry))


def extract(text: str, mode: str | None) -> str:
    """The answer inside ``text``: see `ReasoningGym`."""
    if mode == "number":
        numbers = _NUMBER.findall(text.replace(",", ""))
        return numbers[-1] if numbers else ""
    tagged = _package().utils.extract_answer(text)
    return text.strip() if tagged is None else str(tagged)


def _score(source: str, answer: str, entry: dict[str, Any]) -> float:
    return float(_scorer(source)(answer, entry))


@functools.lru_cache(maxsize=256)
def _scorer(source: str) -> Any:
    try:
        return _package().get_score_answer_fn(source)
    except (ValueError, AttributeError, KeyError):
        raise RequestRefused(422, f"reasoning_gym has no generator {source!r} to score the row with") from None


def _package() -> Any:
    try:
        import reasoning_gym
        import reasoning_gym.utils
    except ImportError as error:
        raise MissingExtraError(f"the environment reasoning_gym ({error})", extra="local") from None
    return reasoning_gym


def _generators(settings: ReasoningGymSettings) -> Mapping[str, Mapping[str, Any]]:
    known = sorted(set(_package().factory.DATASETS) - set(EXCLUDED))
    if isinstance(settings.tasks, str) and settings.tasks in MIXES:
        return MIXES[settings.tasks]
    names: Sequence[str] = [settings.tasks] if isinstance(settings.tasks, str) else settings.tasks
    for name in names:
        if name in EXCLUDED:
            raise ConfigError(f"the generator {name!r} is left out: {EXCLUDED[name]}", key="reasoning_gym.tasks")
        if name not in known:
            hint = suggestion(name, [*known, *MIXES])
            raise ConfigError(f"there is no generator or mix {name!r}{hint}", key="reasoning_gym.tasks")
    if not names:
        raise ConfigError("name at least one generator", key="reasoning_gym.tasks")
    return {name: settings.options for name in names}


def _rows(settings: ReasoningGymSettings, generators: Mapping[str, Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    per_generator = -(-settings.size // len(generators))
    datasets = []
    for name, options in generators.items():
        try:
            made = _package().create_dataset(name, size=per_generator, seed=settings.seed, **options)
        except (TypeError, AssertionError, ValueError) as error:
            raise ConfigError(f"{name} does not take these options: {error}", key="reasoning_gym.options") from None
        datasets.append(made)
    numeric = settings.tasks == "one_digit_sums"
    for position in range(settings.size):
        entry = datasets[position % len(datasets)][position // len(datasets)]
        row = {"responses_create_params": {"input": [{"role": "user", "content": entry["question"]}]}, **entry}
        yield {**row, "extraction_mode": "number"} if numeric else row
