"""Sphinx configuration: Markdown pages, the API and the command line read from the code."""

import sys
from importlib.metadata import version as installed_version
from pathlib import Path

DOCS = Path(__file__).parent
sys.path.insert(0, str(DOCS))

from command_reference import command_reference  # noqa: E402
from draw_architecture import draw  # noqa: E402  (the picture is drawn anew for every build)

project = "bigmc"
author = "the bigmc developers"
copyright = "the bigmc developers"
release = version = installed_version("bigmc")

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.viewcode"]
myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3
source_suffix = {".md": "markdown"}
exclude_patterns = ["_build", "_generated"]

autodoc_typehints = "none"  # the docstrings say the types and shapes
napoleon_google_docstring = False
napoleon_use_rtype = False

html_theme = "furo"
html_title = "bigmc"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_sourcelink = False

draw(DOCS.parent / "bigmc", DOCS / "_static" / "architecture.svg")

COMMANDS = DOCS / "_generated" / "cli.md"
COMMANDS.parent.mkdir(exist_ok=True)
COMMANDS.write_text(command_reference())
