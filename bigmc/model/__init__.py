"""What training leaves: a record saved in one file, and the scores it gives."""

from bigmc.model.archive import FORMAT_VERSION
from bigmc.model.record import Model, load_model, verify_model
from bigmc.model.room import divide
from bigmc.model.scoring import LinearScorer

__all__ = ["FORMAT_VERSION", "LinearScorer", "Model", "divide", "load_model", "verify_model"]
