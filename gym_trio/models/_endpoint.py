"""`Endpoint`: one base URL, its headers and its limits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs
import orjson

from ..config import InvalidSetting
from ..errors import GymError
from ..http import Origin, Request
from ._fair_limiter import FairLimiter

__all__ = ["Endpoint", "base_urls"]


class Endpoint:
    """One base URL of a provider. A URL without a path gets ``/v1``, where OpenAI-compatible servers keep their API."""

    def __init__(self, url: str, headers: Mapping[str, str], limiter: FairLimiter) -> None:
        self.origin, path = _split(url)
        self.url = f"{self.origin}{path}"
        self.limiter = limiter
        self._path = path
        self._headers = tuple(
            (name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()
        )

    def __repr__(self) -> str:
        return f"<Endpoint {self.url} {self.limiter.in_flight} in flight>"

    def request(self, path: str, body: Mapping[str, Any] | None) -> Request:
        """A POST of ``body`` to ``path`` under the base URL (a GET without one). ``..`` leads out of ``/v1``."""
        target = self._target(path).encode("latin-1")
        if body is None:
            return Request("GET", self.origin, target, self._headers)
        content = orjson.dumps(body, option=orjson.OPT_NON_STR_KEYS)
        return Request("POST", self.origin, target, ((b"content-type", b"application/json"), *self._headers), content)

    def url_of(self, path: str) -> str:
        """Where `request` goes, for messages."""
        return f"{self.origin}{self._target(path)}"

    def _target(self, path: str) -> str:
        base = self._path.removesuffix("/v1") if path.startswith("../") else self._path
        return f"{base}/{path.removeprefix('../')}"


def _split(url: str) -> tuple[Origin, str]:
    origin, target = Origin.parse(url)
    path = target.decode("latin-1").partition("?")[0].rstrip("/")
    return origin, path or "/v1"


def base_urls(instance: Any, attribute: attrs.Attribute[Any], value: Any) -> None:
    """A validator for settings: one URL of an API, or a list of them."""
    urls = [value] if isinstance(value, str) else value
    if not urls:
        raise InvalidSetting(attribute.name, "must be a URL or a list of URLs")
    for url in urls:
        try:
            _split(url)
        except GymError as error:
            raise InvalidSetting(attribute.name, str(error)) from None
