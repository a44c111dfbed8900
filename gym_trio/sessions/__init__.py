"""Sessions that always get closed. This room knows no HTTP and no agents.

==============  =========================================================================================
_lifetime       `open_session_registry`: a registry for a block; leaving it drains
_registry       `SessionRegistry`: seed, close, open_nowait, release, drain
_table          which sessions there are: get, using, what falls due, statistics
_draining       closing everything at once
_phases         `SessionPhase` and its one transition function
_opening        an open, and what it made however it ended
_closing        the one way in which a session ends
_reaper         times to live and receipt windows (over the heap in _expiry)
_claims         `Claims`: which rollout attempts are at work here
_records        `Receipt`, `DrainReport`, `RegistryStatistics` and the records behind them
_conflicts      `ConflictReason`
_timeouts       `SessionTimeouts`, `check_seconds`
==============  =========================================================================================
"""

from __future__ import annotations

from ._claims import Claimed, Claims, RunClaim
from ._conflicts import ConflictReason
from ._lifetime import open_session_registry
from ._phases import SessionPhase
from ._records import DrainReport, Receipt, RegistryStatistics, SessionUse
from ._registry import SessionRegistry
from ._timeouts import SessionTimeouts, check_seconds

__all__ = [
    "Claimed",
    "Claims",
    "ConflictReason",
    "DrainReport",
    "Receipt",
    "RegistryStatistics",
    "RunClaim",
    "SessionPhase",
    "SessionRegistry",
    "SessionTimeouts",
    "SessionUse",
    "check_seconds",
    "open_session_registry",
]
