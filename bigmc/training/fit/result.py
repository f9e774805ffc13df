"""The result of a fit: its figures, and what to say of them."""

from __future__ import annotations

import math
from pathlib import Path

from bigmc.model import Model
from bigmc.training.fit.find_winner import FoundWinner
from bigmc.training.results import FitResult, Measured
from bigmc.training.search.winner import Winner


def result_of(
    model: Model, target: Path, winner: Winner, found: FoundWinner, measured: Measured, notes: list[str]
) -> FitResult:
    """Return the result of a fit.

    Parameters
    ----------
    target : Path
        Where it is saved.
    found : FoundWinner
        By the search.
    measured : Measured
        On the test rows.
    """
    searched = found.searched
    return {
        "model": str(target),
        "learner": winner.kind,
        "settings": winner.settings,
        "trials": [
            {
                "settings": str(trial.candidate),
                "quality": trial.quality,
                "log_loss": trial.log_loss,
                "n_nonzero_features": trial.n_features,
                "seconds": trial.seconds,
            }
            for trial in searched.trials
        ],
        "sizes": [
            {"n_features": size.n_features, "quality": size.quality, "log_loss": size.log_loss}
            for size in searched.sizes
        ],
        "ended": searched.ended,
        "n_search_rows": searched.n_rows,
        "n_held_out": searched.n_held_out,
        "objective": model.objective if math.isfinite(model.objective) else None,
        "certificate": {k: v if math.isfinite(v) else None for k, v in model.certificate.items()},
        "n_nonzero_features": len(model.used_features),
        "n_classes": model.n_classes,
        **measured,  # type: ignore[typeddict-item]
        "rivals": found.rivals,
        "notes": notes,
    }


def notes_on(model: Model, winner: Winner, n_rows: int | None) -> list[str]:
    """Return notes on what the certificate does not cover, and on what there was no time for.

    Parameters
    ----------
    n_rows : int or None
        Rows that the training had time for; None if it learned from all.
    """
    notes = []
    if n_rows is not None:
        notes.append(
            f"{'training' if winner.size else 'boosting'} had time or memory for {n_rows:,} rows only"
        )
    if winner.size and math.isinf(model.certificate["upper"]):
        notes.append("there was no time for a certificate")
    elif winner.class_scales is not None:
        notes.append("classes have factors and offsets; the certificate is that of the weights before these")
    return notes


def repeated(result: FitResult, seconds: float) -> FitResult:
    """Return the result of a finished fit; a note says if it lacked time, and there is more now."""
    if lacked_time(result, seconds):
        note = f"the model was made before, and its time was over after {result['time_limit']:g} s"
        result["notes"] = [*result["notes"], f"{note}; to search for longer, add --overwrite"]
    return result


def lacked_time(result: FitResult, seconds: float) -> bool:
    """Return whether a fit ended for lack of time, and had less than so many seconds."""
    return result.get("time_limit", math.inf) < seconds
