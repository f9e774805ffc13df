"""Check that the model file of a fit replaces no other file."""

from __future__ import annotations

from pathlib import Path

from bigmc.errors import ModelError
from bigmc.model import load_model


def refuse_other_file(target: Path, dataset: str | None = None) -> None:
    """Raise an error if the target exists and was not made by a fit of the same dataset.

    Parameters
    ----------
    target : Path
    dataset : str, optional
        Identity of the dataset; if it is not known yet, the model of any fit is accepted.

    Raises
    ------
    ModelError
    """
    if not target.exists():
        return
    try:
        params = load_model(target).params
    except ModelError:
        params = {}
    if "search" not in params or (dataset is not None and params.get("dataset") != dataset):
        raise ModelError(
            f"{target} exists and is not the result of the same command", "delete it, or give another --to"
        )
