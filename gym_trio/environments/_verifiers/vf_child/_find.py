"""From an environment's name and arguments to a driver."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Mapping
from types import ModuleType
from typing import Any

from ._report import Driver, Unusable, described

__all__ = ["find_driver"]


def find_driver(name: str, arguments: Mapping[str, Any]) -> Driver:
    """The environment called ``name``: a module with ``load_environment``, else a taskset.

    ``arguments`` are those of ``load_environment``, or the keys of a taskset's environment configuration.

    **Errors**: `Unusable`.
    """
    if importlib.util.find_spec("verifiers") is None:
        raise Unusable(f"{sys.executable} has no verifiers: {sys.executable} -m pip install verifiers")
    module = _import(name)
    load = getattr(module, "load_environment", None)
    try:
        if load is None:
            return _taskset(name, arguments)
        return _driver_of(load(**arguments), name)
    except Unusable:
        raise
    except (Exception, SystemExit) as error:
        what = "load_environment" if load is not None else "loading its taskset"
        raise Unusable(f"the environment {name!r}: {what} raised {described(error)}") from error


def _import(name: str) -> ModuleType | None:
    """The module of the environment, or None where ``verifiers`` itself may bring a taskset of that name."""
    module = name.rpartition("/")[2].partition("@")[0].replace("-", "_")
    try:
        if _exists(module):
            return importlib.import_module(module)
        if _exists("verifiers.v1") and _exists(f"verifiers.v1.tasksets.{module}"):
            return None
    except Exception as error:
        raise Unusable(f"the environment {name!r}: importing {module} raised {described(error)}") from error
    raise Unusable(
        f"there is no environment {name!r}: {sys.executable} finds no module {module} "
        "(install its package there, or name its folder in search_path)"
    )


def _exists(module: str) -> bool:
    return importlib.util.find_spec(module) is not None


def _driver_of(made: Any, name: str) -> Driver:
    if hasattr(made, "rubric") and hasattr(made, "rollout"):
        from ._classic import ClassicEnvironment

        return ClassicEnvironment(made, name)
    if hasattr(made, "run_slot") and hasattr(made, "taskset"):
        from ._tasksets import TasksetEnvironment

        return TasksetEnvironment(made, name)
    raise Unusable(f"the environment {name!r}: load_environment returned a {type(made).__name__}, not an environment")


def _taskset(name: str, arguments: Mapping[str, Any]) -> Driver:
    from ._tasksets import load_taskset

    return load_taskset(name, arguments)
