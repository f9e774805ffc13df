"""A page that tells a person what a model is and how good: one file, without scripts and network."""

from bigmc.reporting.page import page

__all__ = ["page"]
