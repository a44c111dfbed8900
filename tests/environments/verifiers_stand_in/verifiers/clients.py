from __future__ import annotations

from typing import Any


class OpenAIChatCompletionsClient:
    def __init__(self, native: Any) -> None:
        self.native = native
