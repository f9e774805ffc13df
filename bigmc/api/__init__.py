"""The commands as plain functions: what the command line and a notebook both call."""

from bigmc.api.data import info, ingest, ingest_part, open_dataset, verify
from bigmc.api.fitting import fit
from bigmc.api.inference import evaluate, inspect, predict, report
from bigmc.api.training import load_model, publish, sparse_path, train
from bigmc.api.warm import warm

__all__ = [
    "evaluate",
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
    "train",
    "verify",
    "warm",
]
