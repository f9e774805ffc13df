"""Trained models: their file and their scores."""

from bigmc.model.archive import FORMAT_VERSION
from bigmc.model.base import Model
from bigmc.model.boosted import BoostedModel
from bigmc.model.linear import LinearModel
from bigmc.model.linear_scoring import LinearScorer, Scorer
from bigmc.model.minimax import MinimaxModel
from bigmc.model.outline import ModelOutline
from bigmc.model.registry import KINDS, load_model, outline_of_file, verify_model
from bigmc.model.source import ModelSource
from bigmc.model.summed import SumModel
from bigmc.model.tree_scoring import Trees

__all__ = [
    "FORMAT_VERSION",
    "KINDS",
    "BoostedModel",
    "LinearModel",
    "LinearScorer",
    "MinimaxModel",
    "Model",
    "ModelOutline",
    "ModelSource",
    "Scorer",
    "SumModel",
    "Trees",
    "load_model",
    "outline_of_file",
    "verify_model",
]
