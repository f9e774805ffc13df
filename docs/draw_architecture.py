"""Draw the packages of bigmc and the imports between them: ``draw_architecture.py OUT.svg``.

A package stands one floor above the highest package it imports, so every arrow points down; an import that
points up would be a circle, which the tests forbid.
"""

from __future__ import annotations

import ast
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import escape

BOX_WIDTH, BOX_HEIGHT = 132, 40
GAP_X, GAP_Y, MARGIN = 22, 46, 20


@dataclass(frozen=True)
class Package:
    """A top-level module or package: how many lines it has, what it imports and its first sentence."""

    name: str
    lines: int
    imports: frozenset[str]
    purpose: str


def read_packages(root: Path) -> dict[str, Package]:
    """Read every module below `root` and add up its imports by top-level package."""
    packages = {}
    for entry in sorted(root.iterdir()):
        if entry.name.startswith("__") or not (entry.suffix == ".py" or (entry / "__init__.py").exists()):
            continue
        files = sorted(entry.rglob("*.py")) if entry.is_dir() else [entry]
        name = entry.stem
        imports: Counter[str] = Counter()
        for file in files:
            imports.update(_imported(ast.parse(file.read_text())))
        first = (entry / "__init__.py" if entry.is_dir() else entry).read_text()
        purpose = (ast.get_docstring(ast.parse(first)) or name).splitlines()[0]
        lines = sum(file.read_text().count("\n") for file in files)
        packages[name] = Package(name, lines, frozenset(imports) - {name}, purpose)
    known = set(packages)
    return {p.name: Package(p.name, p.lines, p.imports & known, p.purpose) for p in packages.values()}


def _imported(tree: ast.AST) -> list[str]:
    modules = []
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            if node.module == "bigmc":
                modules += [f"bigmc.{alias.name}" for alias in node.names]
            else:
                modules.append(node.module)
        elif isinstance(node, ast.Import):
            modules += [alias.name for alias in node.names]
    return [module.split(".")[1] for module in modules if module.startswith("bigmc.")]


def floors(packages: dict[str, Package]) -> list[list[str]]:
    """Return the packages by floor, the lowest first.

    Raises
    ------
    ValueError
        If packages import each other in a circle.
    """
    level: dict[str, int] = {}
    while len(level) < len(packages):
        ready = [n for n, p in packages.items() if n not in level and p.imports <= level.keys()]
        if not ready:
            raise ValueError(f"circle among {sorted(packages.keys() - level.keys())}")
        for name in ready:
            level[name] = max((level[below] + 1 for below in packages[name].imports), default=0)
    return [[n for n in packages if level[n] == floor] for floor in range(max(level.values()) + 1)]


def draw(root: Path, target: Path) -> None:
    """Write the picture of the packages below `root` as SVG."""
    packages = read_packages(root)
    rows = floors(packages)[::-1]
    widest = max(map(len, rows))
    width = 2 * MARGIN + widest * (BOX_WIDTH + GAP_X) - GAP_X
    height = 2 * MARGIN + len(rows) * (BOX_HEIGHT + GAP_Y) - GAP_Y
    place = {}
    for i, row in enumerate(rows):
        indent = (width - len(row) * (BOX_WIDTH + GAP_X) + GAP_X) / 2
        for j, name in enumerate(row):
            place[name] = (indent + j * (BOX_WIDTH + GAP_X), MARGIN + i * (BOX_HEIGHT + GAP_Y))
    shapes = [_arrow(place[name], place[below]) for name in place for below in _direct(packages, name)]
    shapes += [_box(packages[name], *place[name]) for name in place]
    style = (
        "text{font:13px sans-serif;text-anchor:middle;fill:#1b1f24}.size{font-size:10px;fill:#57606a}"
        "rect{fill:#eef4fb;stroke:#4a78a8}path{fill:none;stroke:#8b98a5;opacity:.7}"
    )
    head = (
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" markerHeight="7" '
        'orient="auto"><path d="M0 0L8 4L0 8z" style="fill:#8b98a5;stroke:none;opacity:1"/></marker></defs>'
    )
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" role="img" '
        f'aria-label="Packages of bigmc and their imports"><style>{style}</style>{head}'
        f'<rect x="0" y="0" width="{width:.0f}" height="{height:.0f}" style="fill:#fff;stroke:none"/>'
        f"{''.join(shapes)}</svg>\n"
    )


def _direct(packages: dict[str, Package], name: str) -> list[str]:
    """Return the imports that no other import of the package already implies, so that arrows stay few."""
    implied: set[str] = set()
    todo = list(packages[name].imports)
    for below in todo:
        reached = packages[below].imports - implied
        implied |= reached
        todo += reached
    return sorted(packages[name].imports - implied)


def _box(package: Package, x: float, y: float) -> str:
    middle = x + BOX_WIDTH / 2
    return (
        f"<g><title>{escape(package.purpose)}</title>"
        f'<rect x="{x:.0f}" y="{y:.0f}" width="{BOX_WIDTH}" height="{BOX_HEIGHT}" rx="5"/>'
        f'<text x="{middle:.0f}" y="{y + 18:.0f}">{escape(package.name)}</text>'
        f'<text class="size" x="{middle:.0f}" y="{y + 32:.0f}">{package.lines:,} lines</text></g>'
    )


def _arrow(above: tuple[float, float], below: tuple[float, float]) -> str:
    x0, y0 = above[0] + BOX_WIDTH / 2, above[1] + BOX_HEIGHT
    x1, y1 = below[0] + BOX_WIDTH / 2, below[1]
    bend = (y1 - y0) / 2
    return (
        f'<path d="M{x0:.0f} {y0:.0f}C{x0:.0f} {y0 + bend:.0f} {x1:.0f} {y1 - bend:.0f} {x1:.0f} {y1:.0f}" '
        'marker-end="url(#tip)"/>'
    )


if __name__ == "__main__":
    draw(Path(__file__).parents[1] / "bigmc", Path(sys.argv[1]))
