"""Environments of the ``verifiers`` package in child processes.

=================  ==================================================================================
``_settings``      the keys of a block, and how a child is started by them
``_examples``      the rows of the environment's own dataset, read from a child that ends with them
``_children``      the pool: children started, chosen, replaced
``_child``         one child: its socket, its rollouts, its end
``_rollout``       one rollout in a child: its model calls, its end, its withdrawal
``_transcript``    from the model calls of a rollout to one Responses object
``vf_child/``      the program that runs in a child, which needs nothing of gym_trio
=================  ==================================================================================
"""

from __future__ import annotations

from ._children import Children, open_children
from ._examples import example_of, read_rows
from ._rollout import Ask, ModelAnswer
from ._settings import VerifiersSettings, check_python
from ._transcript import Transcript

__all__ = [
    "Ask",
    "Children",
    "ModelAnswer",
    "Transcript",
    "VerifiersSettings",
    "check_python",
    "example_of",
    "open_children",
    "read_rows",
]
