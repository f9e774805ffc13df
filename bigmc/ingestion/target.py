"""Check the target folder of an ingest."""

from __future__ import annotations

from pathlib import Path

from bigmc.errors import DataError
from bigmc.ingestion.fit_feature_map import MAP
from bigmc.ingestion.recipe import Recipe
from bigmc.ingestion.writing.part_receipt import NAMES, REJECTS
from bigmc.store.files.atomic import PARTIAL
from bigmc.store.files.layout import APPENDS, CLASSES, GROUP, MANIFEST, SHARDS, STATISTICS, WIP, read_manifest

LABELS = "labels.json"
"""File of the bytes of many labels in the work folder, for a resumed run."""

PARTS, PARTS_WITH_LABELS = "parts", "parts-with-labels"
"""Folders of finished parts: once labels are counted, shares have less for other things, in every part."""

_OWN = {WIP, SHARDS, STATISTICS, CLASSES, GROUP, NAMES, REJECTS}
WRITTEN = frozenset({*_OWN, MANIFEST, APPENDS})
"""Names of what ingests and appends leave in the folder of a dataset."""
_OWN_WORK = {"lock", "plan.json", PARTS, PARTS_WITH_LABELS, LABELS, MAP}


def is_published(to: Path, recipe: Recipe) -> bool:
    """Return whether the dataset of a recipe is complete; `OtherRecipeError` if another recipe made it."""
    if not (to / MANIFEST).exists():
        return False
    recipe.refuse_other(to, read_manifest(to))
    return True


def refuse_foreign_folder(to: Path) -> None:
    """Raise `DataError` if a target is anything but an unfinished dataset: parts of it will be removed."""
    if not to.exists():  # asked once: another process that begins may make it meanwhile
        if to.is_symlink():
            raise DataError(
                f"{to} links to a folder that does not exist", "make that one, or give another --to"
            )
        return
    if to.is_dir():
        present = {entry.name for entry in to.iterdir() if not entry.name.endswith(PARTIAL)}
        passing = (PARTIAL, ".lock")
        work = {entry.name for entry in (to / WIP).glob("*") if not entry.name.endswith(passing)}
        if not present or (WIP in present and present <= _OWN and work <= _OWN_WORK):
            return
    raise DataError(f"{to} exists and is not a bigmc dataset", "give another --to")
