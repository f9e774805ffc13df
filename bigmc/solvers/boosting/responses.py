"""What the learners in use answer on all samples, kept in memory and shared by the classes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from bigmc.kernels.boosting_cuts import BELOW
from bigmc.kernels.boosting_descent import (
    WORD,
    add_bit_learners,
    add_row_learners,
    bit_scores,
    bit_sweep,
    row_scores,
    row_sweep,
)
from bigmc.kernels.boosting_responses import range_bits, range_rows, spread_codes
from bigmc.solvers.boosting.binning import CodedBlock


class Responses(Protocol):
    """Answers by slot; a slot is freed when no learner with it is left."""

    nbytes: int

    def add(self, key: bytes, answer: NDArray[Any]) -> int:
        """Keep an answer; return its slot."""
        ...
