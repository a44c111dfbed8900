"""``vllm_model``: one or several Chat Completions endpoints, with the exact tokens of each call where asked for."""

from __future__ import annotations

from typing import Any

import attrs

from ..servers import forms
from ._chat_back_end import ChatBackEnd, ChatOptions
from ._endpoint import base_urls
from ._provider import Provider
from ._provider_settings import ProviderSettings
from ._remote import BackEnd, RemoteModel, RemoteModelSettings

__all__ = ["VLLMModel"]


@attrs.frozen(kw_only=True)
class VLLMModelSettings(RemoteModelSettings):
    """``base_url`` is one URL or a list.

    ``return_token_id_information`` puts ``prompt_token_ids``, ``generation_token_ids`` and ``generation_log_probs`` on
    the last output item of each call, and sends them back unchanged in later turns. ``uses_reasoning_parser`` says that
    the endpoint takes reasoning out of the text by itself; otherwise ``<think>...</think>`` is taken out here.
    """

    base_url: str | list[str] = attrs.field(validator=base_urls)
    model: str
    api_key: str | None = None
    return_token_id_information: bool = False
    uses_reasoning_parser: bool = True
    replace_developer_role_with_system: bool = False
    chat_template_kwargs: dict[str, Any] | None = None
    max_tokens_key: str = "max_tokens"


class VLLMModel(RemoteModel):
    """A model behind vLLM, or behind any server of the Chat Completions API."""

    settings_type = VLLMModelSettings
    settings: VLLMModelSettings

    def provider_settings(self) -> ProviderSettings:
        """The endpoints of the block."""
        return self.settings.provider(self.settings.base_url, self.settings.api_key)

    def make_back_end(self, provider: Provider) -> BackEnd:
        """A Chat Completions back end."""
        settings = self.settings
        template = settings.chat_template_kwargs
        options = ChatOptions(
            model=settings.model,
            extra_body={**({"chat_template_kwargs": template} if template else {}), **settings.extra_body},
            dialect=forms.ChatDialect(
                max_tokens_key=settings.max_tokens_key,
                reasoning_in_content=not settings.uses_reasoning_parser,
                developer_as_system=settings.replace_developer_role_with_system,
            ),
            token_ids=settings.return_token_id_information,
            split_think_tags=not settings.uses_reasoning_parser,
        )
        return ChatBackEnd(self.name, provider, options)
