"""Receipts next to results, which say what they were made of: a command does not repeat its own work."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Receipt:
    """What a result was made of, and how the command left it.

    Attributes
    ----------
    made : mapping
        The command with its inputs and options, in what JSON can hold.
    sha256 : str
        Of the result.
    result : mapping
        What the command reported.
    rejects_sha256 : str or None
        Of the file of rows set aside, if there is one.
    replaces_sha256 : str or None
        Of the result before, which is still there if the command was killed before it wrote this one.
    """

    made: Mapping[str, Any]
    sha256: str
    result: Mapping[str, Any] = field(default_factory=dict)
    rejects_sha256: str | None = None
    replaces_sha256: str | None = None

    def to_json(self) -> bytes:
        """Return the receipt as the contents of a file; equal receipts give equal bytes."""
        return json.dumps(vars(self), indent=1, sort_keys=True).encode()

    @classmethod
    def from_json(cls, content: bytes | None) -> Receipt | None:
        """Return the receipt in a file; None where there is none or it cannot be read."""
        try:
            receipt = cls(**json.loads(content or b""))
        except (ValueError, TypeError, RecursionError):
            return None
        return receipt if isinstance(receipt.made, Mapping) and isinstance(receipt.result, Mapping) else None

    def is_of(self, made: Mapping[str, Any]) -> bool:
        """Return whether the result was made by this command of these inputs and options."""
        return bool(self.made == json.loads(json.dumps(made)))
