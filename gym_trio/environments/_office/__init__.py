"""The company that ``workplace_assistant`` works for.

==================  ==================================================================
``_data``           its records, the same every time
``_state``          `Office`: what one session has made of them
``_mail _desk``     the operations
``_operations``     the operations by name; `run` one, `end_state` after several
``_rows``           tasks with the calls that fulfil them
==================  ==================================================================
"""

from __future__ import annotations

from ._operations import OPERATIONS, answer, end_state, run
from ._rows import office_rows
from ._state import Office

__all__ = ["OPERATIONS", "Office", "answer", "end_state", "office_rows", "run"]
