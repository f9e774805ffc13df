"""Kinds of labels."""

from __future__ import annotations

from enum import Enum


class LabelKind(Enum):
    """One label per row, or a set of labels, which may be empty."""

    ONE = "one"
    SET = "set"
