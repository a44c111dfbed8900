"""The evidence of what the model did: model calls, trajectories, and exact tokens for trainers.

===================  =======================================================================================
model calls          `open_capture_store`, `CaptureStore`, `CaptureSettings`, `Captured`; `read_captures`
trajectories         `build_trajectory`: ``ng_trajectory`` from captures and what agents report
tokens               `training_arrays`: one rollout as (token ids, loss mask, log probabilities, reward);
                     `record_of_result`, `record_of_captures`, `record_tokens` → `TokenRecord`; `TokenStore`
===================  =======================================================================================

A `CaptureStore` is set as ``recorder`` on model servers. When a rollout has come back, `CaptureStore.flush` waits until
all its calls are kept; then `CaptureStore.take` gives them for its row.
"""

from __future__ import annotations

from ._entry import Captured
from ._files import read_captures
from ._store import CaptureSettings, CaptureStore, open_capture_store
from ._token_sources import check_mask_fraction, record_of_captures, record_of_result, training_arrays
from ._token_store import TokenStore
from ._tokens import (
    MaskReason,
    MismatchKind,
    PrefixMismatch,
    TokenCall,
    TokenRecord,
    TokenSequence,
    TrainingArrays,
    record_tokens,
)
from ._trajectory import build_trajectory

__all__ = [
    "CaptureSettings",
    "CaptureStore",
    "Captured",
    "MaskReason",
    "MismatchKind",
    "PrefixMismatch",
    "TokenCall",
    "TokenRecord",
    "TokenSequence",
    "TokenStore",
    "TrainingArrays",
    "build_trajectory",
    "check_mask_fraction",
    "open_capture_store",
    "read_captures",
    "record_of_captures",
    "record_of_result",
    "record_tokens",
    "training_arrays",
]
