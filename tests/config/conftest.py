from __future__ import annotations

import pathlib
import textwrap
from collections.abc import Callable

import pytest

from gym_trio.config import GymConfig, load_config
from gym_trio.errors import ConfigError


@pytest.fixture
def put(tmp_path: pathlib.Path) -> Callable[[str, str], pathlib.Path]:
    """Write a file below the test's folder."""

    def write(name: str, text: str) -> pathlib.Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))
        return path

    return write


@pytest.fixture
def load(tmp_path: pathlib.Path) -> Callable[..., GymConfig]:
    """`load_config` with the test's folder as working directory."""

    def loaded(sources: object = (), *overrides: str, **more: object) -> GymConfig:
        return load_config(sources, overrides=overrides, **{"cwd": tmp_path, **more})

    return loaded


@pytest.fixture
def refuse(load: Callable[..., GymConfig]) -> Callable[..., ConfigError]:
    """The `ConfigError` that loading ends with; it is one line."""

    def refused(sources: object = (), *overrides: str, **more: object) -> ConfigError:
        with pytest.raises(ConfigError) as caught:
            load(sources, *overrides, **more)
        assert "\n" not in str(caught.value)
        return caught.value

    return refused
