"""The cookie that only its server can have made."""

from __future__ import annotations

import os
import tracemalloc

import pytest

from gym_trio.errors import RequestRefused
from gym_trio.servers._signed_cookie import SignedCookie

LONG = 40_000


def test_what_it_has_not_signed_takes_no_memory() -> None:
    """As many long ones as anybody likes to send."""
    cookie = SignedCookie("session_id")
    tracemalloc.start()
    try:
        for _ in range(200):
            content = os.urandom(LONG // 2).hex().encode().hex()
            for forged in (content, f"{content}.", f"{content}.{content}"):
                with pytest.raises(RequestRefused):
                    cookie.read({"session_id": forged})
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < 10 * LONG


def test_what_it_has_signed_is_known_after_much_else() -> None:
    """Whatever it has been asked meanwhile."""
    cookie = SignedCookie("session_id")
    values = [cookie.sign(str(number)) for number in range(5000)]
    assert [cookie.read({"session_id": value}) for value in values] == [str(number) for number in range(5000)]
    assert [cookie.sign(str(number)) for number in range(5000)] == values
