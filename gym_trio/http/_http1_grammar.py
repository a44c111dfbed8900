"""The grammar of HTTP/1.1 messages, as checks that run once over the bytes, in C."""

from __future__ import annotations

import re
import string

__all__ = [
    "CHUNK_SIZE",
    "PARTIAL_CHUNK_SIZE",
    "PREFACE",
    "SUSPECT",
    "TARGET_BYTES",
    "TOKEN_BYTES",
    "BadRequest",
    "read_field",
]


class BadRequest(Exception):
    """The bytes are not a request that this server reads; ``status`` is the answer, and the connection is over."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason


# What a thing is made of. ``data.translate(None, THESE)`` is what does not belong.
TOKEN_BYTES = (string.digits + string.ascii_letters + "!#$%&'*+-.^_`|~").encode()
TARGET_BYTES = bytes(byte for byte in range(0x21, 0x7F) if byte != ord("#"))  # a target has no fragment
_HOST_BYTES = (
    string.digits + string.ascii_letters + "-._~!$&'()*+,;=%:[]"
).encode()  # a name or an address, and a port
_TEXT_BYTES = b"\t" + bytes(byte for byte in range(0x20, 0x100) if byte != 0x7F)

# In a head: a control character, an LF without its CR, a CR without its LF.
SUSPECT = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]|(?<!\r)\n|\r(?=[^\n])")

PREFACE = b"PRI * HTTP/2.0\r\n\r\n"  # what a client of HTTP/2 with prior knowledge begins with

_EXTENSIONS = rb";[^\x00-\x08\x0a-\x1f\x7f]*"
CHUNK_SIZE = re.compile(rb"([0-9A-Fa-f]{1,16})(" + _EXTENSIONS + rb")?\r\n")
PARTIAL_CHUNK_SIZE = re.compile(rb"([0-9A-Fa-f]{1,16}(" + _EXTENSIONS + rb")?\r?)?")


def read_field(line: bytes) -> tuple[bytes, bytes]:
    """A header's or a trailer's name, in lower case, and its value; ``line`` is without its CRLF.

    **Errors**: `BadRequest`. A folded line, a space before the colon, and a lone CR or LF are among what is malformed.
    """
    name, colon, value = line.partition(b":")
    if not colon or not name or name.translate(None, TOKEN_BYTES) or value.translate(None, _TEXT_BYTES):
        raise BadRequest(400, "a header is malformed")
    name = name.lower()
    value = value.strip(b" \t")
    if name == b"host" and value.translate(None, _HOST_BYTES):
        raise BadRequest(400, "the host header is malformed")
    return name, value
