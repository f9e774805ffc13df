"""bigmc: multiclass learning on data larger than memory, with a certificate."""

from __future__ import annotations

__version__ = "0.1.0"
