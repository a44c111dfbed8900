"""An assistant with the mail, calendar, tasks, customers and web figures of a small company."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import attrs
import orjson

from ..config import positive_int, structure
from ..errors import RequestRefused
from ..servers import COMMON_KEYS, RequestBody, ResourcesServer, function_calls, tools_of
from ._office import Office, end_state, office_rows
from ._office_desk_tools import DeskTools
from ._office_mail_tools import MailTools

__all__ = ["WorkplaceAssistant", "WorkplaceAssistantSettings"]

Calls = list[tuple[str, Mapping[str, Any] | None]]


@attrs.frozen(kw_only=True)
class WorkplaceAssistantSettings:
    """The keys of a ``workplace_assistant`` block besides the common ones. The same ``seed`` gives the same rows."""

    size: int = attrs.field(default=70, validator=positive_int)
    seed: int = 1


class WorkplaceAssistant(MailTools, DeskTools, ResourcesServer):
    """Do what is asked with 27 tools. Reward 1 when the calls leave the same state as the right ones, else 0.

    The calls of the response and those of the row's ``ground_truth`` are both done from the start, in a company of
    their own each; calls that fail change nothing, and reading changes nothing. The states are the same when all
    mail, events, tasks, customers and plots are, but for the case of letters (which counts in a status, a list and a
    board). A record that is not this company's, by its identifier, is taken to exist.

    Source of the rule: NeMo Gym's ``workplace_assistant``.
    """

    description = "An assistant with the mail, calendar, tasks and customers of a small company"
    domain = "agent"
    session_type = Office
    settings_type = WorkplaceAssistantSettings

    @classmethod
    def rows(cls, config: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        settings = structure(WorkplaceAssistantSettings, config, key="workplace_assistant", ignore=COMMON_KEYS)
        return office_rows(settings.size, settings.seed, [tool.definition for tool in tools_of(cls).values()])

    async def verify(self, session: Office, request: RequestBody) -> float:
        made: Calls = list(function_calls(request.response))
        return float(end_state(made) == end_state(_right_calls(request.get("ground_truth"))))


def _right_calls(truth: Any) -> Calls:
    try:
        calls = orjson.loads(truth) if isinstance(truth, str) else truth
        return [(call["name"], orjson.loads(call["arguments"])) for call in calls]
    except (orjson.JSONDecodeError, KeyError, TypeError):
        raise RequestRefused(422, "ground_truth must be a list of calls with name and arguments") from None
