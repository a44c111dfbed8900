"""``--prompt-config``: a YAML file with ``user`` and maybe ``system``, filled in from each row's own fields."""

from __future__ import annotations

import pathlib
import string
from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from ..config import not_empty as _not_empty
from ..config import read_yaml, structure
from ..errors import ConfigError, RowError


@attrs.frozen(kw_only=True)
class Prompt:
    """A template; ``{field}`` stands for a field of the row, ``{{`` and ``}}`` for the brackets themselves."""

    user: str = attrs.field(validator=_not_empty)
    system: str | None = None

    def fill(self, row: Mapping[str, Any]) -> list[dict[str, str]]:
        """The messages for one row. **Errors**: `RowError` for a field that the row does not have."""
        fields = _Fields()
        try:
            messages = [("user", self.user)] if self.system is None else [("system", self.system), ("user", self.user)]
            return [{"role": role, "content": fields.vformat(text, (), row)} for role, text in messages]
        except KeyError as error:
            raise RowError(f"has no field {error.args[0]!r}, which the prompt needs") from None


class _Fields(string.Formatter):
    """Takes whole fields and nothing inside them, so that a template cannot reach into objects."""

    def get_field(self, field_name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Any, str]:
        if field_name not in kwargs:
            raise KeyError(field_name)
        return kwargs[field_name], field_name


def load_prompt(path: pathlib.Path) -> Prompt:
    """Read a prompt file. **Errors**: `ConfigError` with the file and the key or line."""
    prompt = structure(Prompt, read_yaml(path), file=str(path))
    for name, template in (("system", prompt.system), ("user", prompt.user)):
        try:
            list(string.Formatter().parse(template or ""))
        except ValueError as error:
            raise ConfigError(f"is no template: {error}", file=str(path), key=name) from None
    return prompt
