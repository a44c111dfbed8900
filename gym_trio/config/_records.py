"""What a loaded configuration is: frozen records."""

from __future__ import annotations

import pathlib
from collections.abc import Mapping
from typing import Any, TypeVar

import attrs

from ..errors import ConfigError
from ._names import suggestion
from ._redact import redact, secrets_in
from ._run import RunSettings
from ._structure import structure
from ._validators import finite_seconds, optional, port_number, positive_int

SERVER_TYPES: tuple[str, ...] = (
    "responses_api_agents",
    "resources_servers",
    "responses_api_models",
    "environment_servers",
)


@attrs.frozen(kw_only=True)
class BlockCommon:
    """The keys that any block may have, whatever its implementation."""

    entrypoint: str | None = None
    host: str | None = None
    port: int | None = attrs.field(default=None, validator=optional(port_number))
    num_workers: int | None = attrs.field(default=None, validator=optional(positive_int))
    session_close_timeout_seconds: float | None = attrs.field(default=None, validator=optional(finite_seconds))
    domain: str | None = None
    verified: bool = False
    verified_url: str | None = None
    description: str | None = None
    value: str | None = None
    datasets: list[dict[str, Any]] = attrs.Factory(list)
    allowed_agents: str | list[str] | None = None
    allowed_model_types: str | list[str] | None = None


# What a settings class need not declare: pass it as `ignore` to `structure`.
BLOCK_KEYS: frozenset[str] = frozenset(
    field.name for field in attrs.fields(BlockCommon) if field.name != "session_close_timeout_seconds"
)

T = TypeVar("T")


def _hidden(settings: Mapping[str, Any]) -> str:
    return repr(redact(settings))


def error_elsewhere(error: ConfigError, file: str | None) -> ConfigError:
    """The same error, told of another source."""
    where = ": ".join(part for part in (error.file, error.key) if part)
    return ConfigError(str(error).removeprefix(f"{where}: "), file=file, key=error.key)


def beside(file: str | None, name: str) -> pathlib.Path:
    """The file ``name``: beside the configuration ``file`` that names it, else as it is written."""
    near = pathlib.Path(file).parent / name if file else pathlib.Path(name)
    return near if near.is_file() else pathlib.Path(name)


@attrs.frozen(kw_only=True)
class ServerBlock:
    """One server: the instance ``name`` that others refer to, what it is, and its settings."""

    name: str
    server_type: str  # one of SERVER_TYPES
    implementation: str
    settings: Mapping[str, Any] = attrs.field(repr=_hidden)  # every key of the block, those of BLOCK_KEYS included
    host: str | None = None
    port: int | None = None
    num_workers: int | None = None
    entrypoint: str | None = None
    file: str | None = None  # where it was first read; None for a mapping
    origins: Mapping[str, str | None] = attrs.field(factory=dict, repr=False)  # of keys that came from elsewhere

    @property
    def key(self) -> str:
        """The dotted path of the settings in the configuration."""
        return f"{self.name}.{self.server_type}.{self.implementation}"

    def settings_anywhere(self) -> dict[str, Any]:
        """The settings for whoever does not know ``file``: an entrypoint that is a file beside it is absolute."""
        module, _, class_name = (self.entrypoint or "").rpartition(":")
        if not module.endswith(".py"):
            return dict(self.settings)
        return {**self.settings, "entrypoint": f"{beside(self.file, module).resolve()}:{class_name}"}

    def structure(self, cls: type[T]) -> T:
        """The settings as an instance of ``cls``, which need not declare the keys that every block may have.

        **Errors**: `ConfigError`, which names the source of the very key that is wrong.
        """
        try:
            return structure(cls, self.settings, key=self.key, file=self.file, ignore=BLOCK_KEYS)
        except ConfigError as error:
            wrong = (error.key or "").removeprefix(f"{self.key}.").replace("[", ".").split(".")[0]
            if wrong not in self.origins:
                raise
            raise error_elsewhere(error, self.origins[wrong]) from None


@attrs.frozen(kw_only=True)
class GymConfig:
    """A whole configuration, validated, with nothing left to resolve."""

    servers: tuple[ServerBlock, ...]
    settings: Mapping[str, Any] = attrs.field(repr=_hidden)  # all other top-level keys, as they were given
    run: RunSettings = attrs.field(repr=False)  # the same, typed, with defaults
    warnings: tuple[str, ...] = ()
    files: tuple[str, ...] = ()  # every file that was read, lowest precedence first
    # By server, the error of a value that it lacks, or of a reference to one that is not there. Empty if loaded whole.
    dangling: Mapping[str, ConfigError] = attrs.field(factory=dict, repr=False, eq=False)

    def server(self, name: str) -> ServerBlock:
        """The server of that name.

        **Errors**: `ConfigError` with the nearest name there is.
        """
        block = self.find(name)
        if block is None:
            raise ConfigError(f"there is no server {name!r}{suggestion(name, [block.name for block in self.servers])}")
        return block

    def find(self, name: object) -> ServerBlock | None:
        """The server of that name, where there is one."""
        return next((block for block in self.servers if block.name == name), None)

    def of_type(self, server_type: str) -> tuple[ServerBlock, ...]:
        """The servers of one type, in the order of the configuration."""
        return tuple(block for block in self.servers if block.server_type == server_type)

    def to_mapping(self, *, anywhere: bool = False) -> dict[str, Any]:
        """The whole configuration in the form it is written in, secrets and all.

        With ``anywhere``, `load_config` takes it back in any working directory, and without the files.
        """
        blocks = {
            block.name: {
                block.server_type: {
                    block.implementation: block.settings_anywhere() if anywhere else dict(block.settings)
                }
            }
            for block in self.servers
        }
        return {**self.settings, **blocks}

    def redacted(self) -> dict[str, Any]:
        """The same with everything that is shaped like a key hidden: what may be shown and written."""
        hidden: dict[str, Any] = redact(self.to_mapping(), secrets=self.secrets())
        return hidden

    def secrets(self) -> frozenset[str]:
        """The secret texts of the configuration, for `redact` to hide in messages too."""
        return secrets_in(self.to_mapping())

    def to_yaml(self, *, redacted: bool = True) -> str:
        """The configuration as YAML; with secrets only on request."""
        import yaml

        content = self.redacted() if redacted else self.to_mapping()
        text: str = yaml.safe_dump(content, sort_keys=False, allow_unicode=True, width=120)
        return text
