"""What training leaves: a record saved in one file, and the scores it gives."""

from bigmc.model.archive import FORMAT_VERSION
from bigmc.model.boosted import BoostedModel
from bigmc.model.boosted_scoring import Trees
from bigmc.model.kinds import KINDS, load_model, verify_model
from bigmc.model.linear import LinearModel
from bigmc.model.minimax import MinimaxModel
from bigmc.model.record import Model
from bigmc.model.room import divide
from bigmc.model.scoring import LinearScorer, Scorer

__all__ = [
    "FORMAT_VERSION",
    "KINDS",
    "BoostedModel",
    "LinearModel",
    "LinearScorer",
    "MinimaxModel",
    "Model",
    "Scorer",
    "Trees",
    "divide",
    "load_model",
    "verify_model",
]
