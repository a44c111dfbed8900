"""Answers that cite their sources in a prescribed form."""

from __future__ import annotations

import functools
import random
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import attrs

from ..servers import RequestBody, ResourcesServer, Session
from ._cited_facts import FACTS, UNKNOWN
from ._packaged import packaged_rows
from ._reply import text_parts

__all__ = ["CitationIf", "Form", "judge_citations"]

GENERATED = 24  # rows made by chance, after those that were written; each form comes twice

_ATTEMPT = re.compile(r"citation_[A-Za-z0-9_:]+", re.IGNORECASE)
_OPENING, _CLOSING = re.compile(r"<cite\b", re.IGNORECASE), re.compile(r"</cite\s*>", re.IGNORECASE)
_USUAL_IDS = {"full_source": r"citation_[0-9]+", "snippet": r"citation_[0-9]+:snippet_[0-9]+"}


@attrs.frozen
class Form:
    """How a citation is written: what stands around its ids; ``claims`` says that the claim is inside.

    ``shown`` is one for ID, as a row tells of it.
    """

    before: str
    after: str
    shown: str
    several: bool = False  # ids separated by commas
    tagged: bool = False  # <cite> and </cite> must be in balance
    claims: bool = False


FORMS: Mapping[str, Form] = {
    "cite_xml": Form("<cite>", "</cite>", "<cite>ID</cite>", several=True, tagged=True),
    "ascii_brackets": Form(r"\[", r"\](?!\()", "[ID]"),
    "claim_wrap_xml": Form(
        '<cite index="', '">(.*?)</cite>', '<cite index="ID">claim</cite>', several=True, tagged=True, claims=True
    ),
    "fullwidth_brackets": Form("【", "】", "【ID】"),
    "ref_colon": Form(r"\[ref:", r"\]", "[ref:ID]"),
    "double_angle": Form("<<", ">>", "<<ID>>"),
    "web_brackets": Form(r"\[web:", r"\]", "[web:ID]"),
    "paren_part": Form(r"\(", r"\)", "(ID)"),
    "markdown_footnote": Form(r"\[\^", r"\]", "[^ID]"),
    "curly_double": Form(r"\{\{", r"\}\}", "{{ID}}"),
    "angle_pipe": Form(r"<ref\|", ">", "<ref|ID>"),
}


class CitationIf(ResourcesServer):
    """An answer with citations. Reward 1 when they have the form and the sources that the row asks for, else 0.

    The row's ``verifier`` has ``grammar`` (a name of a form in `FORMS`), ``id_regex`` or ``id_kind``, which say what an
    id looks like, ``valid_id_set``, ``min_valid_citations`` (1), ``expected_ids`` or null, ``expected_slack`` (1) and
    ``mode``. With ``cite``: the reply has a text and calls no tool; besides its citations it says something (a claim
    inside one counts); nothing that looks like an id stands outside a well-formed citation, and tags are in balance;
    enough valid ids are cited and no other; and where ids are expected all of them are, with at most the slack more.
    With ``no_cite``: there is neither an id nor a citation. What the answer says is not judged.

    Source of the rule: NeMo Gym's ``citation_if``.
    """

    description = "Answers that cite sources in a prescribed form"
    domain = "instruction_following"

    @classmethod
    def rows(cls, config: Mapping[str, Any]) -> Iterable[dict[str, Any]]:
        yield from packaged_rows("citation_if")
        for number in range(GENERATED):
            yield _row(random.Random(f"citation_if:{number}"), number)

    @classmethod
    def row_problems(cls, row: Mapping[str, Any]) -> Iterable[str]:
        grammar = (row.get("verifier") or {}).get("grammar")
        if grammar not in FORMS:
            yield f"verifier.grammar: must be one of {', '.join(FORMS)}, not {grammar!r}"

    def verify(self, session: Session, request: RequestBody) -> dict[str, Any]:
        calls = sum(item.get("type") == "function_call" for item in request.response.get("output") or ())
        text = "\n".join(part for part in text_parts(request.response) if part).strip()
        wanted = request.get("verifier") or {}
        failed, details = judge_citations(text, calls, wanted)
        return {"reward": float(failed is None), "match_details": {"gate_failed": failed, **details}}


@functools.lru_cache(maxsize=512)
def _pattern(form: Form, ids: str) -> re.Pattern[str]:
    several = rf"(?:,(?:{ids}))*" if form.several else ""
    flags = re.DOTALL if form.claims else 0
    return re.compile(
        rf"{form.before}(?P<ids>(?:{ids}){several}){form.after.replace('(.*?)', '(?P<claim>.*?)')}", flags
    )


def judge_citations(text: str, calls: int, wanted: Mapping[str, Any]) -> tuple[str | None, dict[str, Any]]:
    """The first demand that ``text`` does not meet, or ``None``, and what was found."""
    form = FORMS.get(wanted.get("grammar") or "")
    if form is None:
        return "unknown_grammar", {}
    if not text or calls:
        return "structural", {"function_call_count": calls}
    usual = _USUAL_IDS.get(wanted.get("id_kind") or "", _USUAL_IDS["full_source"])
    spans = [
        match
        for match in _pattern(form, wanted.get("id_regex") or usual).finditer(text)
        if not form.claims or match["claim"].strip()
    ]
    cited = list(dict.fromkeys(each for match in spans for each in match["ids"].split(",")))
    valid_ids = set(wanted.get("valid_id_set") or ())
    valid = [each for each in cited if each in valid_ids]
    details = {"parsed_ids": cited, "cited_ids": valid, "invalid_cited": [each for each in cited if each not in valid]}
    if wanted.get("mode") == "no_cite":
        markup = bool(spans) or (form.tagged and _OPENING.search(text) is not None)
        return ("no_cite" if markup or _ATTEMPT.search(text) else None), details
    failed = _malformed(text, form, spans) or _misplaced(cited, valid, wanted)
    return failed, details


def _malformed(text: str, form: Form, spans: Sequence[re.Match[str]]) -> str | None:
    if not re.search(r"\w", _without(text, spans, keep_claims=form.claims)):
        return "no_answer"
    balanced = len(_OPENING.findall(text)) == len(spans) == len(_CLOSING.findall(text))
    if _ATTEMPT.search(_without(text, spans)) or (form.tagged and not balanced):
        return "malformed_attempt"
    return None


def _misplaced(cited: Sequence[str], valid: Sequence[str], wanted: Mapping[str, Any]) -> str | None:
    if len(valid) < int(wanted.get("min_valid_citations", 1)):
        return "must_cite"
    if len(valid) < len(cited):
        return "no_hallucination"
    expected = wanted.get("expected_ids")
    if expected is None:
        return None
    if set(expected) - set(valid):
        return "correctness_missed_gold"
    return "correctness_over_cap" if len(valid) > len(set(expected)) + int(wanted.get("expected_slack", 1)) else None


def _without(text: str, spans: Sequence[re.Match[str]], *, keep_claims: bool = False) -> str:
    """``text`` with blanks in place of the citations, but for the claims inside them if these are kept."""
    signs = list(text)
    for match in spans:
        start, end = match.span("claim") if keep_claims else (match.end(), match.end())
        for place in (*range(match.start(), start), *range(end, match.end())):
            signs[place] = " "
    return "".join(signs)


def _row(rng: random.Random, number: int) -> dict[str, Any]:
    grammar = list(FORMS)[number % len(FORMS)]
    known = rng.sample(FACTS, rng.randint(3, 6))
    snippets = number % 2 == 1
    ids = [f"citation_{n}" for n in rng.sample(range(1, 30), len(known))]
    ids = [f"{each}:snippet_{rng.randint(1, 9)}" for each in ids] if snippets else ids
    sources = "\n".join(f"{each}: {sentence}" for each, (_, sentence) in zip(ids, known, strict=True))
    verifier: dict[str, Any] = {
        "type": "citation_if",
        "grammar": grammar,
        "id_kind": "snippet" if snippets else "full_source",
    }
    verifier |= {"valid_id_set": ids}
    if number % 6 == 5:
        asked = f"{rng.choice(UNKNOWN)} The sources do not help; cite none."
        verifier |= {"mode": "no_cite", "expected_ids": None}
    else:
        places = rng.sample(range(len(known)), rng.randint(1, 2))
        how = "Wrap each claim with its source as" if FORMS[grammar].claims else "Put the source after each claim as"
        questions = " ".join(known[place][0] for place in places)
        asked = f"{questions} {how} {FORMS[grammar].shown}. Cite nothing else."
        expected = [ids[place] for place in places]
        verifier |= {
            "mode": "cite",
            "expected_ids": expected,
            "expected_slack": 0,
            "min_valid_citations": len(expected),
        }
    prompt = f"Sources:\n{sources}\n\n{asked}"
    return {"responses_create_params": {"input": [{"role": "user", "content": prompt}]}, "verifier": verifier}
