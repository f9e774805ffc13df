"""Receipts next to results record how they were made, so a command does not repeat its work."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Receipt:
    """How a result was made, and its digests.

    `made` has the command with its inputs and options, and `result` its reported figures, as JSON data.
    `replaces_sha256` is that of the previous result, which still exists if the command was killed before
    writing this one.
    """

    made: Mapping[str, Any]
    sha256: str
    result: Mapping[str, Any] = field(default_factory=dict)
    rejects_sha256: str | None = None
    replaces_sha256: str | None = None

    def to_json(self) -> bytes:
        """Return the receipt as bytes; equal receipts give equal bytes."""
        return json.dumps(vars(self), indent=1, sort_keys=True).encode()

    @classmethod
    def from_json(cls, content: bytes | None) -> Receipt | None:
        """Return the receipt in a file; None if it is missing or unreadable."""
        try:
            receipt = cls(**json.loads(content or b""))
        except (ValueError, TypeError, RecursionError):
            return None
        return receipt if isinstance(receipt.made, Mapping) and isinstance(receipt.result, Mapping) else None

    def is_of(self, made: Mapping[str, Any]) -> bool:
        """Return whether this command made the result with these inputs and options."""
        return bool(self.made == json.loads(json.dumps(made)))
