"""Sphinx configuration: Markdown pages, the API and the command line read from the code."""

import re
import subprocess
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


def write_commands() -> None:
    """Let typer write the reference of the commands, and give its lists of commands whole sentences."""
    COMMANDS.parent.mkdir(exist_ok=True)
    subprocess.run(
        [
            *(sys.executable, "-m", "typer", "bigmc.cli.program", "utils", "docs", "--name", "bigmc"),
            *("--title", "Options", "--output", str(COMMANDS)),
        ],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    text = COMMANDS.read_text()
    for command, sentence in re.findall(r"^#+ `bigmc ([^`]+)`\n\n(.+)$", text, re.MULTILINE):
        shortened = rf"^\* `{command.split()[-1]}`: .*\.\.\.$"
        text = re.sub(shortened, f"* `{command.split()[-1]}`: {sentence}", text, flags=re.MULTILINE)
    COMMANDS.write_text(text)


write_commands()
