"""Environments of OpenEnv, played over their own protocol."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from typing import Any

import httpx
import trio

from ..config import structure
from ..errors import FailureKind, RequestRefused, RolloutFailure, Stage, ToolError
from ..http import (
    SocketTransport,
    TransportSettings,
    WebSocket,
    connect_websocket,
    open_socket_transport,
)
from ..servers import (
    COMMON_KEYS,
    GymnasiumServer,
    RequestBody,
    ResetAnswer,
    StepAnswer,
    function_calls,
    open_calls,
    output_text,
    step_response,
)
from . import _openenv_wire as wire
from ._openenv_process import open_app, open_command
from ._openenv_schema import choose_actions, fetch_action_schema
from ._openenv_session import OpenEnvSession, Places
from ._openenv_settings import OpenEnvSettings, check_settings
from ._openenv_texts import Actions, describe, tool_definitions, tool_result

__all__ = ["OpenEnv", "OpenEnvSettings"]

OVER = "The episode has ended; this call was not made."


class OpenEnv(GymnasiumServer):
    """Plays any environment of OpenEnv (PyPI: ``openenv``), one session of its server for each rollout.

    ::

        maze:
          resources_servers:
            openenv:
              domain: games
              app: maze_env.server.app:app      # or base_url: https://owner-maze-env.hf.space
              action_field: move
        maze_agent:
          responses_api_agents:
            gymnasium_agent:
              resources_server: {type: resources_servers, name: maze}
              model_server: {type: responses_api_models, name: policy_model}
              max_steps: 20

    Where the environment's server is, one of

    - ``base_url`` alone: it runs there; ``headers`` go with every request (``{authorization: Bearer ...}``).
    - ``app`` (``module:name``, what ``create_app`` made): it is started here, with uvicorn on a free port, by
      ``python`` (this one unless given: one where openenv and the environment are installed), in ``cwd``, with ``env``.
    - ``command`` and ``base_url``: the command is started here, and serves there.

    What is started here is ready when ``/health`` answers, within ``ready_timeout_seconds``, and ends with this server.

    How the model's reply becomes an action. ``action: auto`` goes by the schema that the server publishes: one field
    that is required, or that there is at all, takes the reply (as text, or as a JSON value where it is no text); more
    fields are a JSON object in the reply, the last one in it; an environment of tools is offered to the model as tools.
    ``text``, ``json`` or ``tools`` settles it, as does ``action_field``. ``<think>`` parts are left out.
    ``action_pattern`` is a regular expression whose last match (its first group) is the action, such as
    ``<move>(.*?)</move>``; ``action_values`` are fields that every action has. With ``explain_action`` the first
    observation says which form is wanted. ``tools``: each call is a step, and a reply without a call ends the episode.

    What the model sees of an observation: its one text, or the whole as JSON; or ``observation_template``, a text with
    ``{field}`` in it.

    ``reward: sum`` adds the rewards of the steps, ``last`` takes the last that was given (as OpenEnv's own harness
    does). A reward of none (OpenEnv writes NaN so, too) counts nothing, but when it comes with the end of the episode
    the rollout fails, for it is unscored; ``missing_reward: zero`` lets it pass. An episode that the agent's
    ``max_steps`` cuts has what it had earned by then.

    What the server refuses: error codes in ``observed_errors`` are told to the model, cost it a step and move
    nothing (an action that does not fit its schema; add ``EXECUTION_ERROR`` where an environment raises at illegal
    moves). Any other fails the rollout. An action that a ``field_validator`` of its own refuses is among those:
    OpenEnv's server (0.10) cannot write that error, and ends the session (``session_lost``); what a ``Field`` demands
    is told.

    Rows have ``seed`` and ``reset``, an object of further arguments of the environment's reset; ``episode_id`` is the
    rollout's id unless the row says it. Without a file of rows there are ``size`` of them (10, or one for each of
    ``resets``), with the seeds from ``seed`` on (null: none), ``resets`` in turn and ``prompt`` as the system message.

    ``max_sessions`` bounds the sessions at once; the others wait. A server that has no room says how many it has (one,
    unless its ``create_app`` says ``max_concurrent_envs``), and that is the bound then. A rollout waits at most
    ``session_wait_seconds`` for its turn. ``connect_timeout_seconds``, ``close_timeout_seconds`` and
    ``max_message_bytes`` bound one connection.

    **Cancellation**: closes the connection, which ends the environment at its server once its running step is over.

    **Errors**: `MissingExtraError` for an ``app`` without openenv; `ServerStartError` for one that does not come up. A
    server that cannot be reached (``transport_unreachable``), one that hangs up (``transport_peer_drop``) and what it
    answers besides observations fail the rollout, each in its stage.

    **Ownership**: sessions end at the server with their rollout; ``close_timeout_seconds`` bounds the wait for that.
    """

    description = "Environments of the openenv package, at a URL or started here"
    domain = "other"
    settings_type = OpenEnvSettings
    settings: OpenEnvSettings

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._url = check_settings(self.settings, self.name)
        self._places = Places(self.name, self.settings.max_sessions, self.settings.session_wait_seconds)
        self._transport_settings = TransportSettings(
            connect_seconds=self.settings.connect_timeout_seconds,
            ssl_context=httpx.create_ssl_context() if self._url.startswith("https:") else None,  # one for all sessions
        )
        self._headers = tuple((name.lower().encode(), value.encode()) for name, value in self.settings.headers.items())
        self._finding = trio.Lock()
        self._actions: Actions | None = None  # found at the first reset
        self._nursery: trio.Nursery  # both while the server runs
        self._transport: SocketTransport

    @classmethod
    def rows(cls, config: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        """``size`` rows."""
        settings = structure(OpenEnvSettings, config, key="openenv", ignore=COMMON_KEYS)
        for position in range(settings.size or len(settings.resets) or 10):
            row: dict[str, Any] = {
                "responses_create_params": {"input": [{"role": "system", "content": settings.prompt}]}
            }
            if settings.seed is not None:
                row["seed"] = settings.seed + position
            if settings.resets:
                row["reset"] = settings.resets[position % len(settings.resets)]
            yield row

    @classmethod
    def row_problems(cls, row: Mapping[str, Any]) -> Iterable[str]:
        seed = row.get("seed")
        if seed is not None and (isinstance(seed, bool) or not isinstance(seed, int) or seed < 0):
            yield f"seed: must be a whole number of at least 0, not {seed!r:.80}"
        if not isinstance(row.get("reset", {}), Mapping):
            yield f"reset: must be an object, not {row['reset']!r:.80}"

    @contextlib.asynccontextmanager
    async def lifespan(self) -> AsyncIterator[None]:
        """The environment's server, if it is started here, outlives the sessions at it."""
        async with self._environment() as url, open_socket_transport(self._transport_settings) as transport:
            self._url, self._transport = url, transport
            async with trio.open_nursery() as nursery:
                self._nursery = nursery
                async with super().lifespan():
                    yield
                nursery.cancel_scope.cancel()

    def _environment(self) -> contextlib.AbstractAsyncContextManager[str]:
        settings = self.settings
        if settings.app is not None:
            return open_app(
                self.name,
                settings.app,
                python=settings.python,
                cwd=settings.cwd,
                env=settings.env,
                ready_timeout_seconds=settings.ready_timeout_seconds,
            )
        if settings.command is not None:
            return open_command(
                self.name,
                settings.command,
                self._url,
                cwd=settings.cwd,
                env=settings.env,
                ready_timeout_seconds=settings.ready_timeout_seconds,
            )
        return contextlib.nullcontext(self._url)

    # --- sessions ---

    async def create_session(self) -> OpenEnvSession:
        return OpenEnvSession(self.name)

    async def dispose_session(self, session: OpenEnvSession) -> None:
        try:
            await session.close(self.settings.close_timeout_seconds)
        finally:
            self._places.give_back(session)

    async def reset(self, session: OpenEnvSession, row: RequestBody) -> ResetAnswer:
        message = wire.reset(_reset_options(row))
        actions = await self._find_actions()

        async def attempt() -> wire.Seen | wire.Refusal:
            await session.connect(self._connect)
            return await session.exchange(message)

        seen = self._accepted(await self._places.begin(session, attempt), Stage.SEED)
        session.actions, session.total, session.has_reward = actions, 0.0, False
        info = {"tools": await self._list_tools(session)} if actions.tools else {}
        if seen.done:
            raise self._failure("the episode has ended before its first step", Stage.SEED)
        texts = [actions.explanation if self.settings.explain_action else "", self._describe(seen)]
        return "\n\n".join(text for text in texts if text) or None, info

    async def step(self, session: OpenEnvSession, response: Mapping[str, Any], row: RequestBody) -> StepAnswer:
        actions = session.actions
        if actions is None:
            raise RequestRefused(409, "the session was not reset")
        if actions.tools:
            return await self._call_tools(session, response)
        try:
            action = actions.action_of(output_text(response))
        except ToolError as error:
            return f"That is no action: {error}. {actions.explanation}".strip(), 0.0, False, False, {}
        answer = await session.exchange(wire.step(action))
        if self._is_told(answer):
            return f"The environment refused the action: {answer}", 0.0, False, False, {}
        seen = self._accepted(answer, Stage.AGENT)
        return self._describe(seen) or None, self._reward(session, seen), seen.done, False, {}

    # --- environments of tools ---

    async def _list_tools(self, session: OpenEnvSession) -> list[dict[str, Any]]:
        seen = self._accepted(await session.exchange(wire.step(wire.LIST_TOOLS)), Stage.SEED)
        tools = tool_definitions(seen.observation)
        if not tools:
            raise self._failure(f"the environment lists no tools: {dict(seen.observation)!r:.200}", Stage.SEED)
        return tools

    async def _call_tools(self, session: OpenEnvSession, response: Mapping[str, Any]) -> StepAnswer:
        """Each open call of the reply is a step, in their order, until one ends the episode."""
        calls = open_calls([item for item in response.get("output") or () if isinstance(item, Mapping)])
        if not calls:
            if not session.has_reward:
                self._note_unscored("the model made no further call, and no step so far")
            return None, 0.0, True, False, {}
        reward, done = 0.0, False
        outputs = []
        for call in calls:
            text = OVER
            if not done:
                text, earned, done = await self._call_one(session, call)
                reward += earned
            outputs.append({"call_id": call.get("call_id"), "output": text})
        return None, reward, done, False, {"tool_outputs": outputs}

    async def _call_one(self, session: OpenEnvSession, call: Mapping[str, Any]) -> tuple[str, float, bool]:
        ((name, arguments),) = function_calls({"output": [call]})
        if arguments is None:
            return "The arguments are no JSON object.", 0.0, False
        answer = await session.exchange(wire.step(wire.call_tool(name, arguments)))
        if self._is_told(answer):
            return str(answer), 0.0, False
        seen = self._accepted(answer, Stage.AGENT)
        return tool_result(seen.observation, self.settings.observation_template), self._reward(session, seen), seen.done

    # --- what the server answers ---

    async def _connect(self) -> WebSocket:
        return await connect_websocket(
            f"{self._url}/ws",
            self._nursery,
            headers=self._headers,
            settings=self._transport_settings,
            max_message_bytes=self.settings.max_message_bytes,
        )

    async def _find_actions(self) -> Actions:
        """How replies become actions: by the server's schema, which is asked for once."""
        async with self._finding:
            if self._actions is None:
                schema = await fetch_action_schema(self._transport, self._url, self._headers)
                self._actions = choose_actions(schema, self.settings, self.name)
            return self._actions

    def _is_told(self, answer: wire.Seen | wire.Refusal) -> bool:
        return isinstance(answer, wire.Refusal) and answer.code in self.settings.observed_errors

    def _accepted(self, answer: wire.Seen | wire.Refusal, stage: Stage) -> wire.Seen:
        if isinstance(answer, wire.Refusal):
            raise answer.failure(self.name, stage)
        return answer

    def _describe(self, seen: wire.Seen) -> str:
        try:
            return describe(seen.observation, self.settings.observation_template)
        except (ValueError, LookupError, AttributeError, TypeError) as error:
            raise self._failure(f"observation_template does not fit an observation: {error}", Stage.AGENT) from None

    def _reward(self, session: OpenEnvSession, seen: wire.Seen) -> float:
        if seen.reward is None:
            if seen.done:
                self._note_unscored("the step that ended the episode")
            return 0.0
        reward: float = step_response(self.name, None, seen.reward, seen.done, False, {})["reward"]
        session.has_reward = True
        if self.settings.reward == "sum":
            return reward
        earlier, session.total = session.total, reward
        return reward - earlier

    def _note_unscored(self, what: str) -> None:
        if self.settings.missing_reward == "error":
            raise RolloutFailure(
                FailureKind.VERIFIER_ERROR,
                f"{self.name}: {what} brought no reward, or one that is no number (missing_reward: zero lets it pass)",
                stage=Stage.VERIFICATION,
                terminal=True,
            )

    def _failure(self, message: str, stage: Stage) -> RolloutFailure:
        return RolloutFailure(FailureKind.AGENT_RUN_ERROR, f"{self.name}: {message}", stage=stage, terminal=True)


def _reset_options(row: RequestBody) -> dict[str, Any]:
    """The arguments of the environment's reset. **Errors**: `RequestRefused` (422) that names the row's wrong field."""
    for problem in OpenEnv.row_problems(row):
        raise RequestRefused(422, problem)
    options = {"episode_id": row.rollout_id, "seed": row.get("seed"), **row.get("reset", {})}
    return {name: value for name, value in options.items() if value is not None}
