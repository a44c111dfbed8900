"""Every exception that gym_trio raises, and the vocabulary of failures.

::

    GymError
    ├── UsageError                  the caller's own input is wrong; nothing was started
    │   ├── ConfigError             a configuration file, key or override
    │   ├── RowError                a task row
    │   ├── FormError               a model request or answer that the other API's form cannot carry
    │   └── MissingExtraError       an optional dependency is not installed
    ├── TransportError              a request did not bring back a complete response
    │   ├── ConnectFailed           no connection; no byte of the request was sent
    │   ├── TransportTimeout        connect, write or idle bound passed
    │   ├── PeerDropped             the connection ended before the response was complete
    │   ├── ProtocolError           the peer does not speak HTTP/1.1, or exceeded a limit
    │   └── LocalResourceError      this machine refused: file descriptors, memory, ports
    ├── ResponseError               a complete response whose status or body is an error
    ├── RequestRefused              raised by a handler: answer this request with a status and a reason
    │   └── ToolError               raised by a tool: the model gets the message and may try again
    ├── ModelCallError              a model provider refused a call or could not be reached
    ├── RolloutFailure              one rollout failed; data for everyone but its own caller
    ├── SessionError
    │   ├── SessionSetupError       opening failed and hands over what was half made
    │   ├── SessionConflict         another body, another episode, a closing or closed id
    │   ├── SessionsDraining        the registry takes no new sessions
    │   └── SessionCloseFailed      the close did not finish; the state is kept
    ├── ServerStartError            a server did not become ready
    ├── ServerDied                  a managed server ended while it was needed
    └── RunError                    a whole run cannot go on
        ├── RunInterrupted          a signal came before anything was run
        └── RunLocked               another live run writes the same output

An error names the key, row, server or file it is about, and what to do. Foreign exceptions become these at one
boundary per room: sockets in ``http``, row sources in ``rollouts``, user code in ``servers``.
"""

from __future__ import annotations

import enum
from typing import Any

__all__ = [
    "ConfigError",
    "ConnectFailed",
    "Delivery",
    "FailureKind",
    "FormError",
    "GymError",
    "LocalResourceError",
    "MissingExtraError",
    "ModelCallError",
    "PeerDropped",
    "ProtocolError",
    "RequestRefused",
    "ResponseError",
    "RolloutFailure",
    "RowError",
    "RunError",
    "RunInterrupted",
    "RunLocked",
    "ServerDied",
    "ServerStartError",
    "SessionCloseFailed",
    "SessionConflict",
    "SessionError",
    "SessionSetupError",
    "SessionsDraining",
    "Stage",
    "ToolError",
    "TransportError",
    "TransportTimeout",
    "UsageError",
]


class Delivery(enum.StrEnum):
    """How far a request or a row got towards the server that would act on it."""

    NOT_STARTED = "not_started"  # no task was started for it
    NOT_SENT = "not_sent"  # a task was started; no byte had been handed to the connection
    POSSIBLY_DELIVERED = "possibly_delivered"  # at least one byte was handed over; the server may have acted


class Stage(enum.StrEnum):
    """The part of a rollout in which it failed."""

    ADMISSION = "admission"  # before a request was made
    SEED = "seed"  # preparing the environment's or the agent's session
    AGENT = "agent"  # the agent's own loop, its model calls and tool calls
    VERIFICATION = "verification"  # computing the reward
    CLEANUP = "cleanup"  # closing sessions after the result was known


class FailureKind(enum.StrEnum):
    """The registered kinds of failure. A server's own kinds are strings of the form ``"<server>:<kind>"``."""

    TRANSPORT_UNREACHABLE = "transport_unreachable"  # no connection could be made
    TRANSPORT_PEER_DROP = "transport_peer_drop"  # the peer went away before its response was complete
    TRANSPORT_TIMEOUT = "transport_timeout"  # a connect, write or idle bound passed
    TRANSPORT_LOCAL_RESOURCE = "transport_local_resource"  # this machine ran out of something
    AGENT_RUN_ERROR = "agent_run_error"  # the agent answered with an error that will not go away
    AGENT_REQUEST_FAILED = "agent_request_failed"  # no answer, or one that says to try again
    AGENT_TIMEOUT = "agent_timeout"  # the rollout's own deadline passed
    AGENT_COMMAND_NOT_ALLOWED = "agent_command_not_allowed"  # the agent tried what its sandbox forbids
    JUDGE_FAILED = "judge_failed"  # the judge model did not answer
    JUDGE_UNPARSEABLE = "judge_unparseable"  # the judge answered, and not in its form
    VERIFIER_ERROR = "verifier_error"  # the verifier raised, hung or returned no number
    PROVIDER_UNAVAILABLE = "provider_unavailable"  # the model or sandbox provider is down
    PROVIDER_QUOTA_EXHAUSTED = "provider_quota_exhausted"  # the provider refuses more work
    PROVIDER_OOM_KILLED = "provider_oom_killed"  # the provider's process was killed for its memory
    SESSION_LOST = "session_lost"  # the server no longer knows the session
    SESSION_EXPIRED = "session_expired"  # the session outlived its time to live
    SESSION_RELEASE_FAILED = "session_release_failed"  # a close was not confirmed
    CANCELLED = "cancelled"  # withdrawn by its caller
    KILL_SHAPED = "kill_shaped"  # a process ended by a signal
    SHUTDOWN = "shutdown"  # the server was shutting down
    PERSISTENCE_FAILED = "persistence_failed"  # a file could not be written
    COHORT_INCOMPLETE = "cohort_incomplete"  # siblings that the reward needs are missing


class GymError(Exception):
    """The root of the tree."""


class UsageError(GymError):
    """The caller's own input is wrong. Raised before anything starts; the command line exits 2 with its one line."""


class ConfigError(UsageError):
    """A configuration is wrong. ``file`` and ``key`` (a dotted path) say where, as far as they are known."""

    def __init__(self, message: str, *, file: str | None = None, key: str | None = None) -> None:
        where = ": ".join(part for part in (file, key) if part)
        super().__init__(f"{where}: {message}" if where else message)
        self.file = file
        self.key = key


class RowError(UsageError):
    """A task row is wrong. ``source`` is its file or iterable, ``line`` its 1-based line or position."""

    def __init__(self, message: str, *, source: str | None = None, line: int | None = None) -> None:
        where = source or "row"
        if line is not None:
            where = f"{where}:{line}" if source else f"row {line}"
        super().__init__(f"{where}: {message}" if source or line is not None else message)
        self.source = source
        self.line = line


class FormError(UsageError):
    """A model request or answer holds what the form it must be converted to cannot carry (HTTP 400)."""


class MissingExtraError(UsageError):
    """An optional dependency is missing; the message has the ``pip install`` that brings it."""

    def __init__(self, what: str, *, extra: str, install: str | None = None) -> None:
        """``install``: what pip is to install, where the extra itself does not bring it."""
        wanted = install or f"'gym_trio[{extra}]'"
        super().__init__(f"{what} needs an optional dependency: pip install {wanted}")
        self.extra = extra


class TransportError(GymError):
    """No complete response came back. ``delivery`` says whether the server may have acted on the request."""

    def __init__(self, message: str, *, delivery: Delivery = Delivery.POSSIBLY_DELIVERED) -> None:
        super().__init__(message)
        self.delivery = delivery


class ConnectFailed(TransportError):
    """No connection could be made, so nothing was sent."""

    def __init__(self, message: str, *, delivery: Delivery = Delivery.NOT_SENT) -> None:
        super().__init__(message, delivery=delivery)


class TransportTimeout(TransportError):
    """A connect, write or idle bound of the transport passed (never a caller's own scope)."""


class PeerDropped(TransportError):
    """The connection ended before the response was complete."""


class ProtocolError(TransportError):
    """The peer sent what is not HTTP/1.1, or more than a limit allows."""


class LocalResourceError(TransportError):
    """This machine refused a socket: file descriptors, memory or ports ran out."""

    def __init__(self, message: str, *, delivery: Delivery = Delivery.NOT_SENT) -> None:
        super().__init__(message, delivery=delivery)


class ResponseError(GymError):
    """``server`` answered, and the answer is an error: its ``status``, or a body that is not what it must be.

    ``body`` holds at most 2,000 characters of what came back; ``retry_after_seconds`` is the server's own advice.
    """

    def __init__(
        self,
        message: str,
        *,
        server: str,
        status: int,
        body: str = "",
        retry_after_seconds: float | None = None,
    ) -> None:
        super().__init__(message)
        self.server = server
        self.status = status
        self.body = body[:2000]
        self.retry_after_seconds = retry_after_seconds


class RequestRefused(GymError):
    """Raised inside a handler: the request is answered with ``status`` and ``{"detail": detail}``."""

    def __init__(self, status: int, detail: Any) -> None:
        super().__init__(detail if isinstance(detail, str) else repr(detail))
        self.status = status
        self.detail = detail


class ToolError(RequestRefused):
    """Raised by a tool: its message goes to the model as the tool's output, and the rollout goes on."""

    def __init__(self, detail: str, *, status: int = 400) -> None:
        super().__init__(status, detail)


class ModelCallError(GymError):
    """A model provider refused a call, or could not be reached within the call's budget.

    ``status`` is what the model server answers with; ``body`` the provider's own error body, secrets hidden; ``kind``
    the `FailureKind` of a rollout that ends by it; ``terminal`` means that asking again cannot help.
    """

    def __init__(
        self,
        message: str,
        *,
        status: int,
        kind: str,
        body: Any = None,
        terminal: bool = False,
        retry_after_seconds: float | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.kind = kind
        self.body = body
        self.terminal = terminal
        self.retry_after_seconds = retry_after_seconds


class RolloutFailure(GymError):
    """One rollout failed.

    ``kind`` is a `FailureKind` or ``"<server>:<kind>"``; ``status`` the HTTP status where there was one; ``stage`` a
    `Stage`; ``terminal`` means that another attempt cannot help; ``body`` at most 2,000 characters of an error
    response; ``exception_type`` the name of what was raised. ``delivery`` says whether the agent may have acted.
    """

    def __init__(
        self,
        kind: str,
        message: str,
        status: int | None = None,
        stage: str = Stage.AGENT,
        terminal: bool = False,
        *,
        body: str = "",
        exception_type: str | None = None,
        delivery: Delivery = Delivery.POSSIBLY_DELIVERED,
        details: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message
        self.status = status
        self.stage = stage
        self.terminal = terminal
        self.body = body[:2000]
        self.exception_type = exception_type
        self.delivery = delivery
        self.details = details or {}

    def __repr__(self) -> str:
        return (
            f"RolloutFailure({str(self.kind)!r}, {self.message!r}, status={self.status}, "
            f"stage={str(self.stage)!r}, terminal={self.terminal})"
        )


class SessionError(GymError):
    """A session could not be opened, used or closed."""


class SessionSetupError(SessionError):
    """Raise it from ``open_session`` to hand over what was half made: ``state`` will be closed like a whole one."""

    def __init__(self, state: Any, message: str = "the session could not be set up") -> None:
        super().__init__(message)
        self.state = state


class SessionConflict(SessionError):
    """The id is bound to another body or episode, or is closing or closed (HTTP 409); ``reason`` says which."""

    def __init__(self, message: str, *, reason: str = "") -> None:
        super().__init__(message)
        self.reason = reason


class SessionsDraining(SessionError):
    """The server is shutting down and takes no new sessions (HTTP 503)."""


class SessionCloseFailed(SessionError):
    """The close was not confirmed; the state is kept and the close can be tried again (HTTP 500)."""


class ServerStartError(GymError):
    """A server did not become ready. ``server`` is its name; the message has its last lines and its exit code.

    ``returncode`` and ``last_lines`` are those of a managed server's process, where there was one.
    """

    def __init__(
        self, message: str, *, server: str, returncode: int | None = None, last_lines: tuple[str, ...] = ()
    ) -> None:
        super().__init__(message)
        self.server = server
        self.returncode = returncode
        self.last_lines = last_lines


class ServerDied(GymError):
    """A managed server ended while it was needed."""

    def __init__(
        self, message: str, *, server: str, returncode: int | None = None, last_lines: tuple[str, ...] = ()
    ) -> None:
        super().__init__(message)
        self.server = server
        self.returncode = returncode
        self.last_lines = last_lines


class RunError(GymError):
    """A whole run cannot go on."""


class RunInterrupted(RunError):
    """A signal came before the servers were ready: nothing was run. ``exit_code`` is the signal's."""

    def __init__(self, exit_code: int) -> None:
        super().__init__("interrupted before the servers were ready; nothing was run")
        self.exit_code = exit_code


class RunLocked(RunError):
    """Another live run holds the lock of the same output."""
