"""The evidence of a rollout, put into its result before anyone gets it: model calls, trajectory, exact tokens."""

from __future__ import annotations

import pathlib
import tempfile
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import ExitStack, asynccontextmanager
from typing import Any, Protocol

import attrs

from ..capture import (
    Captured,
    CaptureSettings,
    CaptureStore,
    TokenRecord,
    TokenStore,
    build_trajectory,
    open_capture_store,
    read_captures,
    record_of_captures,
    record_of_result,
)
from ..config import GymConfig
from ..errors import ConfigError, GymError
from ..http import ServerClient
from ..servers import ModelServer, Server

__all__ = ["Evidence", "capture_folder", "evidence_of_processes", "open_evidence"]


class CallSource(Protocol):
    """Where the captured calls of a rollout are taken from."""

    async def take(self, rollout_id: str, since: float) -> Captured: ...

    def forget(self, rollout_id: str) -> None: ...


@attrs.frozen
class HeldCalls:
    """Calls of model servers in this process."""

    store: CaptureStore

    async def take(self, rollout_id: str, since: float) -> Captured:
        await self.store.flush(rollout_id)
        return self.store.take(rollout_id)

    def forget(self, rollout_id: str) -> None:
        self.store.take(rollout_id)


@attrs.frozen
class WrittenCalls:
    """Calls of model servers in other processes, which write them to a common folder."""

    folder: pathlib.Path
    client: ServerClient
    model_servers: tuple[str, ...]

    async def take(self, rollout_id: str, since: float) -> Captured:
        for name in self.model_servers:
            await self.client.post(name, f"/ng-rollout/{rollout_id}/flush_model_calls", json={})
        return await read_captures(self.folder, rollout_id, since=since)

    def forget(self, rollout_id: str) -> None:
        """What is on disk stays there."""


@attrs.frozen
class Evidence:
    """What a gym does with each result when its configuration asks for evidence."""

    calls: CallSource
    tokens: TokenStore | None
    record_tokens: bool

    async def attach(self, rollout_id: str, result: Mapping[str, Any], since: float) -> dict[str, Any]:
        """``result`` with ``ng_model_call_capture``, ``ng_trajectory``, and ``mask_sample`` where tokens are missing.

        Returns after every call of the rollout that had begun is kept: the write barrier of its row.

        **Errors**: none of a missing capture: what is missing is named as a gap.
        """
        captured = await self._take(rollout_id, since)
        row = dict(result)
        row["ng_model_call_capture"] = captured.to_row()
        row["ng_trajectory"] = build_trajectory(row, captured, observations=row.get("ng_agent_observations"))
        if self.record_tokens:
            record = self._record(rollout_id, row, captured)
            if self.tokens is not None:
                await self.tokens.put(record)
            row |= record.to_row()
        return row

    async def _take(self, rollout_id: str, since: float) -> Captured:
        try:
            return await self.calls.take(rollout_id, since)
        except GymError as error:
            return Captured(gaps=({"code": "capture_unreadable", "detail": str(error)},))

    def _record(self, rollout_id: str, row: Mapping[str, Any], captured: Captured) -> TokenRecord:
        record = record_of_result({**row, "_ng_rollout_id": rollout_id})
        if record.mask_sample and captured.calls:
            return record_of_captures(captured, rollout_id=rollout_id)
        return record


@asynccontextmanager
async def open_evidence(config: GymConfig, servers: Iterable[Server]) -> AsyncIterator[Evidence]:
    """Evidence from model servers in this process: a store for the length of the block, set on each of them."""
    async with open_capture_store(CaptureSettings(folder=_folder(config))) as store:
        for server in servers:
            if isinstance(server, ModelServer):
                server.recorder = store
        yield _evidence(config, HeldCalls(store))


def evidence_of_processes(config: GymConfig, folder: pathlib.Path, client: ServerClient) -> Evidence:
    """Evidence from model servers in other processes, which write to ``folder``."""
    names = tuple(block.name for block in config.of_type("responses_api_models") if "command" not in block.settings)
    return _evidence(config, WrittenCalls(folder, client, names))


def capture_folder(config: GymConfig, stack: ExitStack) -> pathlib.Path:
    """The folder that processes share: the configured one, or one that ends with ``stack``."""
    folder = _folder(config)
    return folder or pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="gym_trio_capture_")))


def _folder(config: GymConfig) -> pathlib.Path | None:
    given = config.run.model_call_capture_dir
    return pathlib.Path(given) if given is not None else None


def _evidence(config: GymConfig, calls: CallSource) -> Evidence:
    settings = config.run.token_id_capture
    for key in ("sink", "lineage_store", "rebuild_response"):
        if getattr(settings, key):
            raise ConfigError(
                "is not supported here; tokens are kept in token_id_capture.dir", key=f"token_id_capture.{key}"
            )
    tokens = TokenStore(pathlib.Path(settings.dir)) if settings.enabled and settings.dir else None
    return Evidence(calls, tokens, settings.enabled)
