"""Chemistry questions with options, answered in whatever form."""

from __future__ import annotations

import html
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import attrs

from .. import metrics
from ..servers import RequestBody, ResourcesServer, Session, output_text
from ._packaged import packaged_rows
from ._reply import token_means

__all__ = ["BunsenBenchChemistry", "answer_in", "even_chemistry", "options_of"]

MODES = ("correct", "wrong_answer", "refusal", "early_termination", "malformed_choice", "format_violation")
_SUBFIELD = ("bct_field", "bct_subfield")

_ANSWER_TAGS = ("answer", "choice", "response", "final_answer", "final-answer")
_SAID = (
    re.compile(r"^[^\S\n]*(?:(?:[-*•]|\d+[.)])\s*)?(?:\*\*)?answer(?:\*\*)?\s*:\s*(.+)$", re.IGNORECASE | re.MULTILINE),
    re.compile(r"(?:\*\*)?answer(?:\*\*)?\s*:\s*(.+?)(?=$|[\r\n])", re.IGNORECASE | re.DOTALL),
    re.compile(
        r"(?:the\s+(?:correct\s+)?answer\s+is|my\s+answer\s+is|i\s+(?:choose|select))\s+(.+?)(?:\n|$)",
        re.IGNORECASE | re.DOTALL,
    ),
)
_BOX = re.compile(r"\\boxed\s*\{")
_WRAPPED = re.compile(r"\\(?:text|mathrm|operatorname)\{(.*)\}", re.DOTALL)
_THINK, _THOUGHT = re.compile(r"<\s*think\b[^>]*>", re.IGNORECASE), re.compile(r"<\s*/\s*think\s*>", re.IGNORECASE)
_CANNOT = r"(?:can(?:'|’)?t|cannot)"
_HELP = r"(?:help|assist|comply|provide|answer)"
_REFUSAL = re.compile(
    rf"i\s*(?:['’]\s*)?m\s+sorry[, ]+(?:but\s+)?i\s+(?:{_CANNOT}|am\s+unable|won(?:'|’)?t)"
    rf"|i\s+{_CANNOT}\s+(?:{_HELP}|do\s+that|continue)|i\s+am\s+(?:not\s+able|unable)\s+to\s+{_HELP}"
    r"|i\s+won(?:'|’)?t\s+be\s+able\s+to\s+(?:help|assist|provide|answer)"
    r"|as\s+an\s+ai(?:\s+language)?\s+model[, ]+i|i\s+(?:must|have\s+to|will\s+have\s+to)\s+(?:decline|refuse)"
    r"|i\s+do\s+not\s+feel\s+comfortable",
    re.IGNORECASE,
)
_SIGNS = str.maketrans(
    {
        **dict(zip("₀₁₂₃₄₅₆₇₈₉⁰¹²³⁴⁵⁶⁷⁸⁹", "01234567890123456789", strict=True)),
        **dict(zip("⁺₊＋⁻₋−–—‒‑", "+++-------", strict=True)),
        **dict(zip("×✕·∙⋅•µμ⁄∕", "xx....uu//", strict=True)),
    }
)
_EDGES = " \t\r\n`*_\"'"


class BunsenBenchChemistry(ResourcesServer):
    r"""A chemistry question with lettered options. Reward 1 for the option of ``expected_answer``, else 0.

    A row has ``options`` (one-entry objects, letter to text) or ``choices`` (texts, or objects with a letter and a
    text), and ``expected_answer``, a letter or an option's text. The reply's answer is the last that names an option,
    of what stands in tags such as ``<choice>``, in a box, after ``Answer:`` or after words such as "the answer is";
    else its last line, else its first. An option is named by its letter or its text, where subscripts, dashes, points
    and blanks may be written in other ways. A block of ``<choices>`` said back is no answer.

    ``error_mode`` says how a rollout ended: correct, wrong_answer, or, where there is no answer, refusal,
    early_termination, malformed_choice or format_violation.

    Source of the rule: NeMo Gym's ``bunsenbench_chemistry_mcq``.
    """

    description = "Multiple-choice questions of chemistry (BunsenBench)"
    domain = "knowledge"

    @classmethod
    def rows(cls, config: Mapping[str, Any]) -> Iterable[dict[str, Any]]:
        return packaged_rows("bunsenbench_chemistry_mcq")

    async def verify(self, session: Session, request: RequestBody) -> dict[str, Any]:
        options = options_of(request)
        given = str(request.get("expected_answer") or "")
        bare = _unwrapped(given).upper()
        expected = bare if len(bare) == 1 and bare.isalpha() else _parsed(given, options) or bare
        if len(expected) == 1 and expected.isalpha():
            options.setdefault(expected, "")
        text = output_text(request.response)
        found = answer_in(text.strip(), options)
        beside = request.get("metadata") or {}
        named = {name: request.get(name) or beside.get(name) for name in ("bunsen_id", "source", *_SUBFIELD)}
        return {
            **named,
            "reward": float(found is not None and found == expected),
            "expected_answer": expected,
            "extracted_answer": found,
            "no_answer": found is None,
            "error_mode": _mode(request.response, text, found, expected),
        }

    def compute_metrics(self, tasks: Sequence[Sequence[dict[str, Any]]]) -> dict[str, Any]:
        """pass@k and majority, also by source, field and subfield; and how the rollouts ended."""
        found = metrics.pass_majority_metrics(tasks, answer_key="extracted_answer")
        for prefix, fields in (("source", ("source",)), ("bct_field", ("bct_field",)), ("bct_subfield", _SUBFIELD)):
            groups: dict[str, list[Any]] = {}
            for task in tasks:
                values = [next((row[field] for row in task if row.get(field)), None) for field in fields]
                if all(values):
                    groups.setdefault("/".join(_segment(value) for value in values), []).append(task)
            for name, group in groups.items():
                inner = metrics.pass_majority_metrics(group, answer_key="extracted_answer")
                inner.pop("per_sample_aggregate", None)
                found |= {f"by_{prefix}/{name}/{key}": value for key, value in inner.items()}
        modes = Counter(str(row.get("error_mode") or _past_mode(row)) for task in tasks for row in task)
        for mode in dict.fromkeys((*MODES, *modes)):
            found[f"error_modes/{mode}/count"] = float(modes[mode])
            found[f"error_modes/{mode}"] = 100.0 * modes[mode] / max(1, modes.total())
        return found

    def get_key_metrics(self, agent_metrics: dict[str, Any]) -> dict[str, Any]:
        """The token means, pass@k and its average at the largest k, and the shares of the endings."""
        chosen = token_means(agent_metrics)
        for name in ("pass@1[avg-of-{k}]", "pass@{k}", "majority@{k}"):
            chosen |= metrics.highest_k_metrics(agent_metrics, name)
        wanted = ("pass@1/accuracy", "pass@1/no_answer", *(f"error_modes/{mode}" for mode in MODES))
        return chosen | {name: agent_metrics[name] for name in wanted if name in agent_metrics}


def _past_mode(row: Mapping[str, Any]) -> str:
    if row.get("reward"):
        return "correct"
    return "format_violation" if row.get("extracted_answer") is None else "wrong_answer"


def _segment(value: Any) -> str:
    text = re.sub(r"\s+", "_", str(value).strip()).replace("/", "__")
    return re.sub(r"[^A-Za-z0-9_.:+-]+", "_", text).strip("_") or "unknown"


def options_of(row: Mapping[str, Any]) -> dict[str, str]:
    """The options of a row, letter to text, from either of its two forms."""
    if row.get("options"):
        return {
            letter.upper(): str(text)
            for option in row["options"]
            for letter, text in option.items()
            if text is not None and len(letter) == 1 and letter.isalpha()
        }
    found: dict[str, str] = {}
    for letter, choice in zip("ABCDEFGHIJKLMNOPQRSTUVWXYZ", row.get("choices") or (), strict=False):
        if isinstance(choice, str):
            found[letter] = choice
            continue
        name = next((choice[key] for key in ("letter", "label", "key", "id") if choice.get(key)), letter)
        text = next((choice[key] for key in ("text", "content", "value", "choice") if choice.get(key)), None)
        if isinstance(name, str) and isinstance(text, str) and len(name.strip()) == 1:
            found[name.strip().upper()] = text
    return found


def even_chemistry(text: str) -> str:
    """``text`` in one of the ways in which it may be written."""
    text = unicodedata.normalize("NFKC", html.unescape(text)).translate(_SIGNS)
    return " ".join("".join(sign for sign in text if unicodedata.category(sign) != "Cf").split())


def answer_in(text: str, options: Mapping[str, str]) -> str | None:
    """The letter of the option that ``text`` answers with, or ``None``: see `BunsenBenchChemistry`."""
    said = [candidate for _, candidate in sorted(_candidates(text), reverse=True)]
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return next((found for each in (*said, *lines[-1:], *lines[:1]) if (found := _parsed(each, options))), None)


def _candidates(text: str) -> Iterator[tuple[int, str]]:
    listed = [each.span for each in _elements(text, "choices")]
    for each in _elements(text, *_ANSWER_TAGS):
        if each.name != "choice" or not _is_within(each.span[0], listed):
            yield each.span[0], each.content
    yield from _boxes(text)
    for pattern in _SAID:
        yield from ((match.start(), match[1]) for match in pattern.finditer(text))


@attrs.frozen
class _Element:
    name: str
    span: tuple[int, int]
    content: str


def _elements(text: str, *names: str) -> Iterator[_Element]:
    """The elements of these names, each up to the first end of its own name, none within another.

    In a time in proportion to the length, which one expression for the whole of an element does not have: an end that
    is not there is looked for once.
    """
    opening = re.compile(rf"<\s*({'|'.join(map(re.escape, names))})\b[^>]*>", re.IGNORECASE)
    last = text.rfind(">") + 1
    without_end: set[str] = set()
    place = 0
    while opened := opening.search(text, place, last):
        name, place = opened[1].lower(), opened.start() + 1
        closing = re.compile(rf"<\s*/\s*{re.escape(name)}\s*>", re.IGNORECASE)
        if name in without_end:
            continue
        if closed := closing.search(text, opened.end()):
            place = closed.end()
            yield _Element(name, (opened.start(), place), text[opened.end() : closed.start()].strip())
        else:
            without_end.add(name)


def _is_within(place: int, spans: Sequence[tuple[int, int]]) -> bool:
    return any(start <= place < end for start, end in spans)


def _boxes(text: str) -> Iterator[tuple[int, str]]:
    place = 0
    while opened := _BOX.search(text, place):
        depth, place = 1, opened.end()
        while depth and place < len(text):
            if text[place] == "\\":
                place += 2
                continue
            depth += (text[place] == "{") - (text[place] == "}")
            place += 1
        if depth:
            return
        yield opened.start(), text[opened.end() : place - 1]


def _parsed(candidate: str, options: Mapping[str, str]) -> str | None:
    for each in (candidate.strip(), _unwrapped(candidate.strip())):
        if each and (found := _letter(each, options) or _by_text(each, options)):
            return found
    return None


def _letter(text: str, options: Mapping[str, str]) -> str | None:
    if len(text) == 1 and text.isalpha():
        return text.upper() if text.upper() in options else None
    for match in (
        re.fullmatch(r"(?:option|choice)\s+([A-Z])\s*[)\].:]?", text, re.IGNORECASE),
        re.match(r"([A-Z])[)\].:](?:\s|$)", text, re.IGNORECASE),
        re.fullmatch(r"[^A-Za-z]*([A-Za-z])[^A-Za-z]*", text),
    ):
        if match and match[1].upper() in options:
            return match[1].upper()
    return None


def _by_text(text: str, options: Mapping[str, str]) -> str | None:
    wanted = even_chemistry(text)
    return next((letter for letter, words in options.items() if words and even_chemistry(words) == wanted), None)


def _unwrapped(text: str) -> str:
    text = text.strip(_EDGES)
    if boxed := re.fullmatch(r"\\boxed\{(.*)\}", text, re.DOTALL):
        text = boxed[1].strip()
    while wrapped := _WRAPPED.fullmatch(text):
        text = wrapped[1].strip()
    while len(text) >= 2 and text[0] in "([{\"'<" and text[-1] in ")]}\"'>":
        text = text[1:-1].strip(_EDGES)
    return text.strip(_EDGES + ".;,")


def _mode(response: Mapping[str, Any], text: str, found: str | None, expected: str) -> str:
    if found is not None:
        return "correct" if found == expected else "wrong_answer"
    items = response.get("output") or ()
    parts = [part for item in items if isinstance(item.get("content"), list) for part in item["content"]]
    if any(isinstance(part, Mapping) and part.get("type") == "refusal" for part in parts):
        return "refusal"
    cut = [response.get("status"), *(item.get("status") for item in items)]
    reason = (response.get("incomplete_details") or {}).get("reason")
    thinking = len(_THINK.findall(text)) > len(_THOUGHT.findall(text))
    if "incomplete" in cut or reason == "max_output_tokens" or thinking:
        return "early_termination"
    if _REFUSAL.search(text):
        return "refusal"
    listed = [each.span for each in _elements(text, "choices")]
    if any(not _is_within(each.span[0], listed) for each in _elements(text, "choice")):
        return "malformed_choice"
    return "format_violation"
