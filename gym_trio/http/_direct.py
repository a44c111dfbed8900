"""`DirectApp`: an ASGI app that answers some requests from their headers and body alone, for callers in its process."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import NamedTuple

__all__ = ["Answer", "AnswerDirectly", "DirectApp", "DirectRoute"]

Pairs = Iterable[tuple[bytes, bytes]]


# A whole response: status, headers, body. Its length is said by whoever sends it.
Answer = tuple[int, Pairs, bytes]

# Called with the request's headers, as in an ASGI scope, the values of its path's parameters, and its body. None, and
# nothing has been done: this request is to be sent to the app.
AnswerDirectly = Callable[[list[tuple[bytes, bytes]], dict[str, str], bytes], Awaitable[Answer] | None]


class DirectRoute(NamedTuple):
    """Who answers, and the values of the path's parameters."""

    answer: AnswerDirectly
    path_params: dict[str, str]


class DirectApp:
    """An ASGI app that can be asked who answers a request. The answer is the one that it would send itself.

    In memory a rollout is six requests, and to make a scope and messages for each, and to read them, is a quarter of
    what it costs. Only who calls the app itself may ask it: a layer around it sees scope and messages, as ever.
    """

    def find_direct(self, method: str, path: str) -> DirectRoute | None:
        """Who answers ``method`` on ``path``, which is decoded; None: the app has to be called."""
        raise NotImplementedError
