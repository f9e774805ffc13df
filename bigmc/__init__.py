"""bigmc: multiclass learning on data larger than memory, with a certificate.

Public names are loaded at their first use, so importing the package is fast.
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

from bigmc.version import __version__

# Arrow's own allocator keeps freed memory: at a memory limit of 64 MB, half as much again. Writing Parquet
# always uses the default allocator. Arrow reads this variable once: a process that has already imported
# pyarrow keeps its allocator.
os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")

if TYPE_CHECKING:
    from bigmc.api import (
        evaluate,
        explain,
        fit,
        ingest,
        inspect,
        load_model,
        open_dataset,
        predict,
        report,
        sparse_path,
        to_sklearn,
        train,
    )
    from bigmc.estimators import MinimaxRiskClassifier, MultiBoostClassifier, SparseClassifier
    from bigmc.text import HashingVectorizer, TextClassifier

__all__ = [
    "HashingVectorizer",
    "MinimaxRiskClassifier",
    "MultiBoostClassifier",
    "SparseClassifier",
    "TextClassifier",
    "__version__",
    "evaluate",
    "explain",
    "fit",
    "ingest",
    "inspect",
    "load_model",
    "open_dataset",
    "predict",
    "report",
    "sparse_path",
    "to_sklearn",
    "train",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    of_texts = name in ("HashingVectorizer", "TextClassifier")
    home = "bigmc.text" if of_texts else "bigmc.estimators" if name.endswith("Classifier") else "bigmc.api"
    return getattr(import_module(home), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
