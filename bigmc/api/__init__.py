"""The commands as plain functions, for the command line and Python."""

from bigmc.api.data import doubts_about_labels, info, ingest, ingest_part, open_dataset, verify
from bigmc.api.evaluation import evaluate, report
from bigmc.api.exporting import export, to_sklearn
from bigmc.api.fitting import fit
from bigmc.api.inference import explain, inspect, predict
from bigmc.api.training import load_model, publish, sparse_path, train
from bigmc.api.warm import warm

__all__ = [
    "doubts_about_labels",
    "evaluate",
    "explain",
    "export",
    "fit",
    "info",
    "ingest",
    "ingest_part",
    "inspect",
    "load_model",
    "open_dataset",
    "predict",
    "publish",
    "report",
    "sparse_path",
    "to_sklearn",
    "train",
    "verify",
    "warm",
]
