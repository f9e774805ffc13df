"""Models in formats of other libraries, and model cards."""

from bigmc.export.card import model_card
from bigmc.export.sklearn_pipeline import to_sklearn

__all__ = ["model_card", "to_sklearn"]
