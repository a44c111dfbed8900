"""Configuration: loaded once, validated, frozen.

=====================  ================================================================================
`load_config`          files, ``env.yaml``, mappings and overrides → `GymConfig`
`GymConfig`            the servers (`ServerBlock`), the run keys (`RunSettings`), warnings
`structure`            a mapping → a settings class of yours, strict and with the key's path in errors
validators             `finite_seconds`, `positive_seconds`, `positive_int`, `not_negative_int`, `fraction`,
                       `port_number`, `not_empty`, `one_of`, `optional`, and `InvalidSetting` for your own
`read_yaml`            one YAML file as a mapping, broken lines named
`redact`               hides whatever is shaped like a key
=====================  ================================================================================

This room reads no environment variable: the caller passes the mapping in.
"""

from __future__ import annotations

from ._blocks import DOMAINS
from ._files import read_yaml
from ._load import load_config
from ._names import nearest, suggestion
from ._records import BLOCK_KEYS, SERVER_TYPES, GymConfig, ServerBlock, beside
from ._redact import is_secret_name, redact, redact_text, secrets_in
from ._routes import route_problem
from ._run import ACCEPTED_ELSEWHERE, HeadServer, RunSettings, Skills, TokenIdCapture
from ._structure import structure
from ._validators import (
    InvalidSetting,
    finite_seconds,
    fraction,
    not_empty,
    not_negative_int,
    one_of,
    optional,
    port_number,
    positive_int,
    positive_seconds,
)

__all__ = [
    "ACCEPTED_ELSEWHERE",
    "BLOCK_KEYS",
    "DOMAINS",
    "SERVER_TYPES",
    "GymConfig",
    "HeadServer",
    "InvalidSetting",
    "RunSettings",
    "ServerBlock",
    "Skills",
    "TokenIdCapture",
    "beside",
    "finite_seconds",
    "fraction",
    "is_secret_name",
    "load_config",
    "nearest",
    "not_empty",
    "not_negative_int",
    "one_of",
    "optional",
    "port_number",
    "positive_int",
    "positive_seconds",
    "read_yaml",
    "redact",
    "redact_text",
    "route_problem",
    "secrets_in",
    "structure",
    "suggestion",
]
