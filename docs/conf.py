"""Sphinx configuration: Markdown pages, the API and the command line read from the code."""

import sys
from importlib.metadata import version as installed_version
from pathlib import Path

DOCS = Path(__file__).parent
sys.path.insert(0, str(DOCS))

from draw_architecture import draw  # noqa: E402  (the picture is drawn anew for every build)

project = "bigmc"
author = "the bigmc developers"
copyright = "the bigmc developers"
release = version = installed_version("bigmc")

extensions = ["myst_parser", "numpydoc", "sphinx.ext.autodoc", "sphinx.ext.viewcode", "sphinx_click"]
myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3
source_suffix = {".md": "markdown"}
exclude_patterns = ["_build"]

autodoc_typehints = "none"  # the numpydoc sections say the types
numpydoc_show_class_members = False

html_theme = "furo"
html_title = "bigmc"
html_static_path = ["_static"]

draw(DOCS.parent / "bigmc", DOCS / "_static" / "architecture.svg")
