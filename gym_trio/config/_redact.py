"""Hide whatever is shaped like a key, before it is shown or written.

A value is hidden when its key's name says that it is one, when it looks like one, or when it is one of the
``secrets`` that the caller knows. Numbers, booleans and names such as ``max_output_tokens`` stay readable.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any

HIDDEN = "****"

_SECRET_NAME = re.compile(
    r"api[_-]?key|access[_-]?key|private[_-]?key|secret|passw(or)?d|credential|authorization|token", re.IGNORECASE
)
_NOT_A_SECRET_NAME = re.compile(r"tokeniz|tokens|token[_-]?(id|count|limit|usage|observability)", re.IGNORECASE)

# Each shape keeps what stands before the key, so that the text still tells what was there.
_SHAPES = (
    re.compile(r"((?<![A-Za-z0-9])sk-)[A-Za-z0-9_\-]{3,}"),
    re.compile(r"(\b[Bb]earer\s+|\bBEARER\s+)[A-Za-z0-9._~+/=\-]{3,}"),
    re.compile(r"((?<![A-Za-z0-9])(?:nvapi-|hf_|gh[pousr]_|xox[abp]-|glpat-))[A-Za-z0-9_\-]{8,}"),
    re.compile(r"((?<![A-Za-z0-9])AKIA)[A-Z0-9]{12,}"),
    re.compile(r"(://[^\s/:@]*:)[^\s/@]+(?=@)"),
)
_SHORTEST_SECRET = 6  # a shorter one would be found inside ordinary words


def is_secret_name(name: object) -> bool:
    """Whether a key of this name holds a secret."""
    return isinstance(name, str) and bool(_SECRET_NAME.search(name)) and not _NOT_A_SECRET_NAME.search(name)


def redact_text(text: str, *, secrets: Collection[str] = ()) -> str:
    """``text`` without anything that is shaped like a key or is one of ``secrets``."""
    for secret in secrets:
        if len(secret) >= _SHORTEST_SECRET:
            text = text.replace(secret, HIDDEN)
    for shape in _SHAPES:
        text = shape.sub(rf"\1{HIDDEN}", text)
    return text


def redact(value: Any, *, secrets: Collection[str] = ()) -> Any:
    """A copy of ``value`` (mappings and lists to any depth) with everything that is shaped like a key hidden."""
    if isinstance(value, str):
        return redact_text(value, secrets=secrets)
    if isinstance(value, Mapping):
        return {key: _redact_item(key, item, secrets) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [redact(item, secrets=secrets) for item in value]
    return value


def _redact_item(key: object, item: Any, secrets: Collection[str]) -> Any:
    if is_secret_name(key):
        if isinstance(item, str):
            return HIDDEN if item else item
        if isinstance(item, list | tuple):
            return [HIDDEN if isinstance(one, str) else redact(one, secrets=secrets) for one in item]
    return redact(item, secrets=secrets)


def secrets_in(value: Any) -> frozenset[str]:
    """Every text under a key whose name says that it is a secret: what `redact` should hide elsewhere too."""
    return frozenset(text for text in _secrets(value, False) if len(text) >= _SHORTEST_SECRET)


def _secrets(value: Any, secret: bool) -> Iterator[str]:
    if isinstance(value, str):
        if secret:
            yield value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _secrets(item, is_secret_name(key))
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _secrets(item, secret)
