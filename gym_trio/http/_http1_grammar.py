"""The grammar of HTTP/1.1 messages, as checks that run once over the bytes, in C."""

from __future__ import annotations

import re
import string

__all__ = [
    "CHUNK_SIZE",
    "HOST_BYTES",
    "PARTIAL_CHUNK_SIZE",
    "PREFACE",
    "SUSPECT",
    "TARGET_BYTES",
    "TOKEN_BYTES",
    "BadRequest",
    "read_fields",
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
HOST_BYTES = (string.digits + string.ascii_letters + "-._~!$&'()*+,;=%:[]").encode()  # a name or an address, and a port
_TEXT_BYTES = b"\t" + bytes(byte for byte in range(0x20, 0x100) if byte != 0x7F)

# In a head: a control character, an LF without its CR, a CR without its LF.
SUSPECT = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]|(?<!\r)\n|\r(?=[^\n])")

PREFACE = b"PRI * HTTP/2.0\r\n\r\n"  # what a client of HTTP/2 with prior knowledge begins with

_EXTENSIONS = rb"[ \t]*;[^\x00-\x08\x0a-\x1f\x7f]*"
CHUNK_SIZE = re.compile(rb"([0-9A-Fa-f]{1,16})(" + _EXTENSIONS + rb")?\r\n")
PARTIAL_CHUNK_SIZE = re.compile(rb"([0-9A-Fa-f]{1,16}([ \t]*|" + _EXTENSIONS + rb")\r?)?")


def read_fields(
    block: bytes, most: int, picked_names: frozenset[bytes] = frozenset()
) -> tuple[list[tuple[bytes, bytes]], list[tuple[bytes, bytes]]]:
    """The header or trailer fields in ``block``, lines with CRLF between them; then the picked ones. Names are lowered.

    **Errors**: `BadRequest` when anything but fields is in there, or more than ``most``.
    """
    lines = block.split(b"\r\n") if block else []
    if len(lines) > most:
        raise BadRequest(431, "too many headers")
    fields: list[tuple[bytes, bytes]] = []
    picked: list[tuple[bytes, bytes]] = []
    names = b""
    for line in lines:
        name, colon, value = line.partition(b":")
        if not colon or not name:
            raise BadRequest(400, "a header is malformed")
        names += name
        field = (name.lower(), value.strip(b" \t"))
        fields.append(field)
        if field[0] in picked_names:
            picked.append(field)
    # Folded lines and a space before the colon are caught with the names, a lone CR or LF by their order.
    if names.translate(None, TOKEN_BYTES) or block.translate(None, _TEXT_BYTES) != b"\r\n" * (len(lines) - 1):
        raise BadRequest(400, "a header is malformed")
    return fields, picked
