"""The grammar of HTTP/1.1 messages as regular expressions, each without backtracking that grows with the input."""

from __future__ import annotations

import re

__all__ = [
    "CHUNK_SIZE",
    "HOST",
    "PARTIAL_CHUNK_SIZE",
    "PREFACE",
    "REQUEST_LINE",
    "SUSPECT",
    "BadRequest",
    "read_fields",
]


class BadRequest(Exception):
    """The bytes are not a request that this server reads; ``status`` is the answer, and the connection is over."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason


_TOKEN = rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+"
_TEXT = rb"[^\x00-\x08\x0a-\x1f\x7f]*"  # visible, space, tab, and bytes above ASCII

REQUEST_LINE = re.compile(rb"(" + _TOKEN + rb") ([!\"$-~]+) HTTP/1\.([01])\r\n")  # no "#": a target has no fragment
_FIELD_LINE = re.compile(rb"(" + _TOKEN + rb"):[ \t]*(" + _TEXT + rb")\r\n")
HOST = re.compile(rb"[!$-.0-;=A-Z\[\]_a-z~]*")  # what a name, an address and a port are made of

# In a head: a control character, an LF without its CR, a CR without its LF.
SUSPECT = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]|(?<!\r)\n|\r(?=[^\n])")

PREFACE = b"PRI * HTTP/2.0\r\n\r\n"  # what a client of HTTP/2 with prior knowledge begins with

CHUNK_SIZE = re.compile(rb"([0-9A-Fa-f]{1,16})([ \t]*;" + _TEXT + rb")?\r\n")
PARTIAL_CHUNK_SIZE = re.compile(rb"([0-9A-Fa-f]{1,16}([ \t]*(;" + _TEXT + rb")?\r?)?)?")


def read_fields(lines: bytes, most: int) -> list[tuple[bytes, bytes]]:
    """The header or trailer fields in ``lines``, each of which ends in CRLF; names in lower case.

    **Errors**: `BadRequest` when anything but fields is in there, or more than ``most``.
    """
    parts = _FIELD_LINE.split(lines)  # between, name, value, between, name, value, between
    if any(parts[0::3]):
        raise BadRequest(400, "a header is malformed")
    names = parts[1::3]
    if len(names) > most:
        raise BadRequest(431, "too many headers")
    return [(name.lower(), value.rstrip(b" \t")) for name, value in zip(names, parts[2::3], strict=True)]
