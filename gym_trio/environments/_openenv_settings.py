"""The keys of an ``openenv`` block."""

from __future__ import annotations

import importlib.util
import re
import string
from typing import Any, Literal

import attrs

from ..config import finite_seconds, not_negative_int, optional, positive_int, positive_seconds
from ..errors import ConfigError, MissingExtraError, UsageError
from ..http import Origin

__all__ = ["OpenEnvSettings", "check_settings"]

ASK = (
    "You act in an environment. Each message shows what you see of it; answer with your next action, and nothing else."
)


@attrs.frozen(kw_only=True)
class OpenEnvSettings:
    """The keys of an ``openenv`` block besides the common ones; `OpenEnv` says what they mean."""

    base_url: str | None = None
    headers: dict[str, str] = attrs.field(factory=dict)
    app: str | None = None
    command: list[str] | None = None
    python: str | None = None
    cwd: str | None = None
    env: dict[str, str] = attrs.field(factory=dict)
    ready_timeout_seconds: float = attrs.field(default=120.0, validator=positive_seconds)
    action: Literal["auto", "text", "json", "tools"] = "auto"
    action_field: str | None = None
    action_pattern: str | None = None
    action_values: dict[str, Any] = attrs.field(factory=dict)
    explain_action: bool = True
    observation_template: str | None = None
    observed_errors: list[str] = attrs.field(factory=lambda: ["VALIDATION_ERROR"])
    reward: Literal["sum", "last"] = "sum"
    missing_reward: Literal["error", "zero"] = "error"
    prompt: str = ASK
    size: int | None = attrs.field(default=None, validator=optional(positive_int))
    seed: int | None = attrs.field(default=1, validator=optional(not_negative_int))
    resets: list[dict[str, Any]] = attrs.field(factory=list)
    max_sessions: int | None = attrs.field(default=None, validator=optional(positive_int))
    session_wait_seconds: float = attrs.field(default=600.0, validator=finite_seconds)
    connect_timeout_seconds: float = attrs.field(default=10.0, validator=positive_seconds)
    close_timeout_seconds: float = attrs.field(default=5.0, validator=finite_seconds)
    max_message_bytes: int = attrs.field(default=100 * 1024 * 1024, validator=positive_int)


def check_settings(settings: OpenEnvSettings, name: str) -> str:
    """The URL that the settings name, as ``http`` or ``https`` without a slash at its end; empty where they name none.

    **Errors**: `ConfigError` for settings that do not say where the environment is, or say it twice;
    `MissingExtraError` for an app that this Python is to serve and cannot.
    """
    if settings.app is not None and (settings.base_url is not None or settings.command is not None):
        raise ConfigError("app goes without base_url and command: it is served on a free port", key=f"{name}.app")
    if settings.app is None and settings.base_url is None:
        raise ConfigError(
            "where is the environment's server? base_url (where one runs), app (module:name, started here) or command "
            "and base_url (started here, serving there)",
            key=name,
        )
    if settings.app is not None:
        if ":" not in settings.app:
            raise ConfigError(f"must be module:name, not {settings.app!r}", key=f"{name}.app")
        if settings.python is None and importlib.util.find_spec("openenv") is None:
            raise MissingExtraError(
                f"{name}.app (or, in `python`, a Python that has openenv and the environment installed)",
                extra="openenv",
            )
    _check_texts(settings, name)
    return "" if settings.base_url is None else _http_url(settings.base_url, f"{name}.base_url")


def _check_texts(settings: OpenEnvSettings, name: str) -> None:
    try:
        re.compile(settings.action_pattern or "")
    except re.error as error:
        raise ConfigError(f"must be a regular expression, but: {error}", key=f"{name}.action_pattern") from None
    try:
        list(string.Formatter().parse(settings.observation_template or ""))
    except ValueError as error:
        key = f"{name}.observation_template"
        raise ConfigError(f"must be a text with {{field}} in it, but: {error}", key=key) from None


def _http_url(given: str, key: str) -> str:
    url = re.sub(r"^ws(s?)://", r"http\1://", given).rstrip("/")
    try:
        Origin.parse(url)
    except UsageError as error:
        raise ConfigError(str(error), key=key) from None
    return url
