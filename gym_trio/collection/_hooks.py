"""Environment authors' own metrics, found through the configuration."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

from ..config import GymConfig, ServerBlock
from ..errors import GymError
from ..metrics import Hooks, Source

logger = logging.getLogger(__name__)

Find = Callable[[ServerBlock], Callable[..., Any]]


def hooks_of(config: GymConfig, find: Find) -> Callable[[Source], Hooks | None]:
    """The hooks of the environment that an agent works on, or of the agent where it has none.

    ``find`` gives a block's class. The server is made and not opened: hooks are asked for when a run has ended, and
    whoever served it, it may be gone by then.
    """
    blocks = {block.name: block for block in config.servers}

    def hooks(source: Source) -> Hooks | None:
        block = blocks.get(source.agent)
        if block is None:
            return None
        reference = block.settings.get("resources_server")
        if isinstance(reference, Mapping):
            block = blocks.get(reference.get("name", ""), block)
        try:
            return Hooks.of(find(block)(name=block.name, config=block.settings))
        except GymError as error:
            logger.warning("the metrics of %s's own are left out: %s", block.name, error)
            return None

    return hooks
