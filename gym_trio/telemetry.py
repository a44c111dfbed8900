"""Spans and counters through OpenTelemetry, and nothing at all where the process does not use it.

A process uses it when it has imported ``opentelemetry``: a program that sets OpenTelemetry up, or the command line on
``++telemetry``. Until then every function here is one look into ``sys.modules``. Any room may call this one.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Final

__all__ = ["count", "is_used", "outgoing", "record", "remote_context", "span"]

NAME = "gym_trio"
_NOTHING: Final = nullcontext()  # shared: a rollout that waits inside of one keeps no object for it


def is_used() -> bool:
    """Whether any of this does anything; hot paths ask once and leave the rest out."""
    return "opentelemetry.trace" in sys.modules


def span(name: str, **attributes: Any) -> AbstractContextManager[None]:
    """A span around the block. An exception marks it as failed and goes on; ``None`` attributes are left out."""
    return _span(name, attributes) if is_used() else _NOTHING


@contextmanager
def _span(name: str, attributes: dict[str, Any]) -> Iterator[None]:
    from opentelemetry import trace

    given = {key: value for key, value in attributes.items() if value is not None}
    with trace.get_tracer(NAME).start_as_current_span(f"{NAME}.{name}", attributes=given):
        yield


def count(name: str, value: int = 1, **attributes: Any) -> None:
    """Add to a counter."""
    if is_used():
        from opentelemetry import metrics

        _counter(metrics.get_meter_provider(), f"{NAME}.{name}").add(value, attributes)


def record(name: str, value: float, **attributes: Any) -> None:
    """Add a value to a histogram."""
    if is_used():
        from opentelemetry import metrics

        _histogram(metrics.get_meter_provider(), f"{NAME}.{name}").record(value, attributes)


# An instrument is made once per provider: the SDK warns of a second one with the same name.
@functools.lru_cache(maxsize=64)
def _counter(provider: Any, name: str) -> Any:
    return provider.get_meter(NAME).create_counter(name)


@functools.lru_cache(maxsize=64)
def _histogram(provider: Any, name: str) -> Any:
    return provider.get_meter(NAME).create_histogram(name)


def outgoing() -> dict[str, str]:
    """The headers (``traceparent``) by which a request carries the present span to the next server."""
    headers: dict[str, str] = {}
    if is_used():
        from opentelemetry import propagate

        propagate.inject(headers)
    return headers


def remote_context(headers: Iterable[tuple[bytes, bytes]]) -> AbstractContextManager[None]:
    """The block's spans become children of the span that the request with these ``headers`` came from."""
    return _remote_context(headers) if is_used() else _NOTHING


@contextmanager
def _remote_context(headers: Iterable[tuple[bytes, bytes]]) -> Iterator[None]:
    from opentelemetry import context, propagate

    carrier = {name.decode("latin-1"): value.decode("latin-1") for name, value in headers}
    token = context.attach(propagate.extract(carrier))
    try:
        yield
    finally:
        context.detach(token)
