"""What a user may ask of an ingest, beside its sources and its target, and what is done unasked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

from bigmc.errors import DataError

DEFAULT_SPLITS = {"train": 0.8, "test": 0.2}


@dataclass(frozen=True)
class Options:
    """Options of an ingest with their defaults; :func:`bigmc.api.ingest` describes them."""

    text: Sequence[str] = ()
    label: Any = None
    label_separator: str | None = None
    weight: str | None = None
    categorical: Sequence[str] = ()
    numeric: Sequence[str] = ()
    dense: Sequence[str] = ()
    keep: Sequence[str] = ()
    hash_bits: int = 18
    ngrams: tuple[int, int] = (1, 2)
    analyzer: str = "word"
    lowercase: bool = True
    standardize: bool = False
    fourier: int = 0
    gamma: float | None = None
    missing: str = "refuse"
    weighting: str | None = None
    split: Mapping[str, float] | str = field(default_factory=lambda: dict(DEFAULT_SPLITS))
    group: str | None = None
    seed: int = 0
    n_features: int | None = None
    names: bool = True

    def asked(self, given: Mapping[str, Any]) -> Options:
        """Return these options with those that were given, which are not None, in their place.

        Raises
        ------
        DataError
            If an option is unknown.
        """
        known = {option.name for option in fields(self)}
        for name in given:
            if name not in known:
                raise DataError(
                    f"ingest has no option {name!r}", f"the options are {', '.join(sorted(known))}"
                )
        return replace(self, **{name: value for name, value in given.items() if value is not None})
