"""Environments of the ``verifiers`` package."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from ..config import structure
from ..errors import RequestRefused, ResponseError, RolloutFailure, Stage, TransportError
from ..servers import COMMON_KEYS, RequestBody, ResourcesServer, failure_of, forms, verify_response
from ._verifiers import (
    Children,
    ModelAnswer,
    Transcript,
    VerifiersSettings,
    check_python,
    example_of,
    open_children,
    read_rows,
)

if TYPE_CHECKING:
    from starlette.routing import BaseRoute

__all__ = ["Verifiers"]

FORMS: Mapping[str, str] = {
    "/v1/responses": "responses",
    "/v1/chat/completions": "chat_completions",
    "/v1/messages": "messages",
}
SAMPLING: Mapping[str, str] = {"temperature": "temperature", "top_p": "top_p", "max_output_tokens": "max_tokens"}


class Verifiers(ResourcesServer):
    """An environment of the ``verifiers`` package, which runs its rollouts itself, in child processes.

    ::

        gsm8k:
          resources_servers:
            verifiers:
              domain: math
              env_id: gsm8k                    # as in load_environment("gsm8k", num_eval_examples=50)
              env_args: {num_eval_examples: 50}
              python: .venv-gsm8k/bin/python   # where verifiers and the environment are installed
        gsm8k_agent:
          responses_api_agents:
            environment_driven_agent:
              resources_server: {type: resources_servers, name: gsm8k}
              model_server: {type: responses_api_models, name: policy_model}

    ``env_id`` names an installed package or a module; ``search_path`` are folders that are searched for modules first.
    ``split`` is the dataset that rows come from, ``eval`` or ``train``, and ``num_examples`` bounds them. ``python`` is
    an interpreter that has ``verifiers`` and the environment; without it, it is gym_trio's own. ``processes`` children
    share the rollouts, and each runs many at once.

    Both kinds work: those that ``load_environment`` returns (`SingleTurnEnv`, `MultiTurnEnv`, `ToolEnv`, …; the package
    up to 0.3), and tasksets of ``verifiers.v1``, all there is from 0.4 on. For these ``env_args`` are the keys of the
    package's ``[env]`` table, such as ``agent: {runtime: {type: subprocess}, harness: {id: "null"}}``; where nothing is
    said of it, the package's own harnesses run in its hosted sandboxes.

    A row's ``example`` is one of the environment's own dataset, with ``prompt``, ``answer``, ``info`` and whatever
    else it has there. A row without it gives its input as the prompt, and its ``answer`` and ``info``. Temperature,
    ``top_p`` and ``max_output_tokens`` of the row go to the environment as its sampling arguments.

    The model's calls go to the agent's ``model_server``, whatever it is, as calls of the rollout. The result has the
    rubric's reward, its functions and metrics by their names, also as ``reward_components``, and one response with
    all that was said, by the model and by the environment. The package makes a reward of zero of a reward function
    that raises, and scores a rollout whose model call failed; here either fails its rollout.

    **Cancellation**: cancels the rollout in its child, confirmed within ``cancel_timeout_seconds``; else the child is
    killed, and its other rollouts fail as ``kill_shaped``.

    **Errors**: `MissingExtraError` without the package; `ConfigError` for an environment that cannot be loaded. A child
    that ends fails the rollouts in it (``kill_shaped`` by a signal, else ``session_lost``); the next one starts it
    again.
    """

    description = "An environment of the verifiers package (env_id), which runs its own turns"
    domain = "other"
    default_agent = "environment_driven_agent"
    reverify_mode = "unsupported"
    settings_type = VerifiersSettings
    settings: VerifiersSettings

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        check_python(self.settings, self.name)
        self._children: Children | None = None

    @classmethod
    def rows(cls, config: Mapping[str, Any]) -> Iterable[dict[str, Any]]:
        """The environment's own dataset, in its order. **Errors**: `ConfigError`, `MissingExtraError`."""
        return read_rows(structure(VerifiersSettings, config, key="verifiers", ignore=COMMON_KEYS), "verifiers")

    @contextlib.asynccontextmanager
    async def lifespan(self) -> AsyncIterator[None]:
        """The children live as long as the server."""
        async with open_children(self.settings, self.name) as children, super().lifespan():
            self._children = children
            yield

    def routes(self) -> list[BaseRoute]:
        return [self.route("POST", "/run_rollout", self.run_rollout), *super().routes()]

    async def run_rollout(self, request: RequestBody) -> dict[str, Any]:
        """The result of ``row``, whose model is the server named ``model_server``.

        **Errors**: `RolloutFailure`: the model's own where a model call failed, else by stage.
        """
        row, model_server = request.get("row"), request.get("model_server")
        if not isinstance(row, dict) or not isinstance(model_server, str):
            raise RequestRefused(422, "run_rollout needs a row and the name of a model_server")
        if self._children is None:
            raise RequestRefused(503, f"{self.name} is not running: its lifespan has not started")
        calls = ModelCalls(self, model_server, request.rollout_id, row.get("responses_create_params") or {})
        try:
            found = await self._children.run(example_of(row), calls.sampling, calls.ask)
        except RolloutFailure as failure:
            # The environment only knows that a call of its client failed.
            if calls.failure is not None and failure.stage == Stage.AGENT and failure.exception_type is not None:
                raise calls.failure from None
            raise
        return {**_named(found["metrics"]), **row, **_outcome(found), "response": calls.transcript.response()}

    async def verify(self, session: Any, request: RequestBody) -> float:
        raise RequestRefused(422, f"{self.name} runs its rollouts itself: use the agent {self.default_agent}")


class ModelCalls:
    """The model calls of one rollout."""

    def __init__(self, server: Verifiers, model: str, rollout_id: str | None, params: Mapping[str, Any]) -> None:
        self._server = server
        self._model = model
        self._prefix = f"/ng-rollout/{rollout_id}" if rollout_id else ""
        self._metadata = params.get("metadata")
        self.sampling = {ours: params[key] for key, ours in SAMPLING.items() if params.get(key) is not None}
        self.transcript = Transcript()
        self.failure: RolloutFailure | None = None  # of the last call, when that one failed

    async def ask(self, path: str, body: Any) -> ModelAnswer:
        """The model server's answer to ``body``, for the environment's client."""
        form = FORMS.get(path)
        if form is None or not isinstance(body, dict):
            return ModelAnswer.refusal(404, f"there is no {path}; there are {', '.join(FORMS)}")
        asked = {key: value for key, value in body.items() if key not in ("stream", "stream_options")}
        if self._metadata is not None:
            asked.setdefault("metadata", self._metadata)
        self.failure = None
        try:
            response = await self._server.client.post(self._model, self._prefix + path, json=asked)
            if response.status >= 400:
                self.failure = _refused(response)
                return ModelAnswer(response.status, response.body)
        except TransportError as error:
            self.failure = failure_of(error)
            return ModelAnswer.refusal(502, str(error))
        answer = response.json()
        self.transcript.add(form, asked, answer)
        if not body.get("stream"):
            return ModelAnswer(200, response.body)
        pieces = forms.pieces_of_whole(form, answer, body)
        return ModelAnswer(200, b"".join(piece.content for piece in pieces), "text/event-stream")


def _refused(response: Any) -> RolloutFailure:
    try:
        response.raise_for_status()
    except ResponseError as error:
        return failure_of(error)
    raise AssertionError("the status is no error")


def _named(metrics: Mapping[str, Any]) -> dict[str, float]:
    return {name: float(value) for name, value in metrics.items() if isinstance(value, bool | int | float)}


def _outcome(found: Mapping[str, Any]) -> dict[str, Any]:
    """The keys that the rubric decides. **Errors**: `RolloutFailure` for a reward that is no finite number."""
    verdict = verify_response({"reward": found["reward"]})
    components = _named(found["metrics"])
    ended = {"truncated": found["truncated"], "stop_condition": found["stop_condition"]}
    return {**verdict, **({"reward_components": components} if components else {}), **ended}
