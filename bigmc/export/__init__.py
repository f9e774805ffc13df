"""Models in the forms of other libraries, and as a page to publish beside them."""

from bigmc.export.card import model_card
from bigmc.export.sklearn_pipeline import to_sklearn

__all__ = ["model_card", "to_sklearn"]
