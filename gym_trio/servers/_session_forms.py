"""The bodies of session and episode requests, checked to the letter: an unknown field is refused."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta, Struct

from ..errors import RequestRefused

__all__ = [
    "AgentClose",
    "AgentSeed",
    "EpisodeId",
    "EpisodeRequest",
    "ResourcesClose",
    "ResourcesSeed",
    "TaskId",
    "check_form",
    "claim_key",
    "fingerprint",
]

_NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]*\Z"
_ATTEMPT_SUFFIX = re.compile(r"-a[1-9][0-9]*\Z")

NonEmpty = Annotated[str, Meta(min_length=1)]
Name = Annotated[str, Meta(min_length=1, pattern=_NAME)]
HttpUrl = Annotated[str, Meta(pattern=r"^https?://[^\s/?#]+")]


class _Form(Struct, frozen=True, forbid_unknown_fields=True):
    pass


class EpisodeId(_Form, frozen=True):
    """One attempt at a rollout."""

    rollout_id: Name
    attempt: Annotated[int, Meta(ge=0)] = 0

    def __post_init__(self) -> None:
        if _ATTEMPT_SUFFIX.search(self.rollout_id):
            raise ValueError("rollout_id must not end with the reserved attempt suffix -a<n>")

    @property
    def key(self) -> str:
        """What the attempt is known by in paths, headers and claims: unique, because the suffix is reserved."""
        return f"{self.rollout_id}-a{self.attempt}" if self.attempt else self.rollout_id


class TaskId(_Form, frozen=True):
    taskset: NonEmpty
    task_id: NonEmpty


class DirectHttpAccess(_Form, frozen=True, tag_field="kind", tag="direct_http"):
    """Tools that the agent calls as plain HTTP routes, with these cookies and headers."""

    name: Name
    required: bool
    base_url: HttpUrl
    cookies: dict[str, str] = {}
    headers: dict[str, str] = {}


class McpHttp(_Form, frozen=True, tag_field="transport", tag="streamable_http"):
    url: HttpUrl
    headers: dict[str, str] = {}


class McpStdio(_Form, frozen=True, tag_field="transport", tag="stdio"):
    command: NonEmpty
    args: list[str] = []
    env: dict[str, str] = {}
    cwd: str | None = None


class McpAccess(_Form, frozen=True, tag_field="kind", tag="mcp"):
    name: Name
    required: bool
    connection: McpHttp | McpStdio


class SandboxConnection(_Form, frozen=True, tag_field="kind", tag="direct"):
    provider_config_ref: str
    descriptor: dict[str, Any]


class SandboxAccess(_Form, frozen=True):
    connection: SandboxConnection
    workdir: str


class AgentSeed(_Form, frozen=True):
    agent_session_id: NonEmpty
    episode_id: EpisodeId
    task_id: TaskId
    tool_accesses: list[DirectHttpAccess | McpAccess] = []
    sandbox_access: SandboxAccess | None = None

    def __post_init__(self) -> None:
        names = [access.name for access in self.tool_accesses]
        if len(names) != len(set(names)):
            raise ValueError("the names of tool_accesses must be unique")

    @property
    def resources_cookies(self) -> dict[str, str]:
        """The cookies of all direct tools, which go back to the caller at close, brought up to date."""
        direct = [access for access in self.tool_accesses if isinstance(access, DirectHttpAccess)]
        return {name: value for access in direct for name, value in access.cookies.items()}


class AgentClose(_Form, frozen=True):
    agent_session_id: str
    episode_id: EpisodeId


class ResourcesSeed(_Form, frozen=True):
    resources_session_id: NonEmpty
    episode_id: EpisodeId
    task_id: TaskId
    task_data: dict[str, Any]


class ResourcesClose(_Form, frozen=True):
    resources_session_id: str
    episode_id: EpisodeId


class Task(_Form, frozen=True):
    task_id: TaskId
    task_input: dict[str, Any]


class EpisodeRequest(_Form, frozen=True):
    episode_id: EpisodeId
    task: Task


F = TypeVar("F", bound=_Form)


def check_form(form: type[F], body: Mapping[str, Any]) -> F:
    """``body`` as a ``form``.

    **Errors**: `RequestRefused` (422) that says which field is wrong and how.
    """
    try:
        return msgspec.convert(dict(body), form)
    except msgspec.ValidationError as error:
        raise RequestRefused(422, str(error)) from None


def as_body(form: _Form) -> dict[str, Any]:
    """``form`` as a JSON object, with every default filled in."""
    built: dict[str, Any] = msgspec.to_builtins(form)
    return built


def fingerprint(form: _Form) -> bytes:
    """Equal for requests that mean the same: defaults count as given, the order of keys does not."""
    return msgspec.json.encode(form, order="deterministic")


def claim_key(row: Mapping[str, Any], rollout_id: str | None) -> str | None:
    """What a row's rollout attempt is claimed under: its rollout id, else the one that its indices make."""
    if rollout_id:
        return rollout_id
    task, rollout, attempt = (row.get(f"_ng_{part}_index") for part in ("task", "rollout", "attempt"))
    if not isinstance(task, int) or not isinstance(rollout, int):
        return None
    return f"{task}-{rollout}" + (f"-a{attempt}" if attempt else "")
