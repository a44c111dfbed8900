"""The rows of an environment's own dataset; and from a row the example that the environment gets."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
from collections.abc import Iterator, Mapping
from typing import Any

import orjson

from ...errors import ConfigError, FailureKind, FormError, RolloutFailure, Stage
from ...servers import forms
from ._settings import HEAD, VerifiersSettings, check_python, child_command

__all__ = ["EXAMPLE", "example_of", "read_rows"]

EXAMPLE = "example"  # a row's key: the example as the environment's dataset has it
# Keys of rows that other tools wrote, as `verifiers` calls them.
_OF_A_DATASET = ("answer", "info", "task", "example_id")


def read_rows(settings: VerifiersSettings, key: str) -> Iterator[dict[str, Any]]:
    """The rows, read from a child that loads the environment, and is gone when the last has come.

    Blocks, as reading a file does. **Errors**: `ConfigError`, one line that names the environment; `MissingExtraError`.

    **Ownership**: closing the iterator early kills the child.
    """
    check_python(settings, key)
    ours, theirs = socket.socketpair()
    with ours:
        with theirs:
            command = child_command(settings, theirs.fileno())
            child = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=2, pass_fds=[theirs.fileno()], start_new_session=True
            )
        try:
            ours.sendall(settings.question("rows"))
            yield from _rows(ours, child, key)
        finally:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()


def _rows(link: socket.socket, child: subprocess.Popen[bytes], key: str) -> Iterator[dict[str, Any]]:
    with link.makefile("rb") as stream:
        while True:
            head = stream.read(HEAD.size)
            content = stream.read(HEAD.unpack(head)[0]) if len(head) == HEAD.size else b""
            if not content:
                raise ConfigError(f"the process that loads the environment ended: exit code {child.wait()}", key=key)
            message = orjson.loads(content)
            match message["op"]:
                case "row":
                    yield {
                        "responses_create_params": {"input": _items(message["messages"])},
                        EXAMPLE: message["example"],
                    }
                case "end":
                    return
                case _:
                    raise ConfigError(message["message"], key=f"{key}.env_id")


def _items(messages: list[Any]) -> list[Any]:
    """Chat messages as input items; where that form has no place for one, they stay as they are."""
    try:
        items: list[Any] = forms.chat_request_to_responses({"messages": messages})["input"]
    except FormError:
        return messages
    return items


def example_of(row: Mapping[str, Any]) -> dict[str, Any]:
    """What the environment gets for ``row``: its ``example``; else one made of the row's input and answer.

    **Errors**: `RolloutFailure` (terminal) for a row with neither, or with an input that is no chat.
    """
    example = row.get(EXAMPLE)
    if isinstance(example, Mapping):
        return dict(example)
    given = (row.get("responses_create_params") or {}).get("input")
    if not given:
        raise RolloutFailure(
            FailureKind.AGENT_RUN_ERROR,
            f"the row has neither {EXAMPLE!r} nor a responses_create_params.input",
            stage=Stage.SEED,
            terminal=True,
        )
    try:
        prompt = forms.responses_request_to_chat({"input": given})["messages"]
    except FormError as error:
        what = f"the row's input cannot be the environment's prompt: {error}"
        raise RolloutFailure(FailureKind.AGENT_RUN_ERROR, what, stage=Stage.SEED, terminal=True) from None
    return {"example_id": 0, **{key: row[key] for key in _OF_A_DATASET if key in row}, "prompt": prompt}
