"""HTML reports on models: one file, without scripts or network."""

from bigmc.reporting.page import page

__all__ = ["page"]
