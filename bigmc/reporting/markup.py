"""Build HTML from elements; text that is not markup is escaped."""

from __future__ import annotations

import html
import math
import unicodedata
from collections.abc import Iterable

#: Categories of invisible or unwritable characters: controls, surrogates, ends of lines.
_UNSEEN = {"Cc", "Cs", "Zl", "Zp"}
#: Elements without content.
_EMPTY = {"meta", "circle", "line", "polygon", "polyline"}


class Markup(str):
    """Text that is HTML."""

    __slots__ = ()


Content = str | int


def element(tag: str, *content: Content, **attributes: str | float) -> Markup:
    """Return an element; a trailing ``_`` of an attribute's name is dropped, other ``_`` become ``-``."""
    settings = "".join(
        f' {name.rstrip("_").replace("_", "-")}="{html.escape(visible(str(value)))}"'
        for name, value in attributes.items()
    )
    return Markup(f"<{tag}{settings}/>" if tag in _EMPTY else f"<{tag}{settings}>{join(content)}</{tag}>")


def join(content: Iterable[Content]) -> Markup:
    """Return pieces one after another, data among them escaped."""
    return Markup(
        "".join(c if isinstance(c, Markup) else html.escape(visible(str(c)), quote=False) for c in content)
    )


def visible(text: str) -> str:
    r"""Return a text with invisible characters written as ``\x00``."""
    if text.isprintable():
        return text
    return "".join(
        c.encode("unicode_escape").decode() if unicodedata.category(c) in _UNSEEN else c for c in text
    )


def name(text: object) -> Markup:
    """Return a label or the name of a feature, isolated in its direction of writing."""
    return element("bdi", str(text), class_="name")


def figure(value: float | None, digits: int = 6) -> Markup:
    """Return a number rounded for display; the element's ``value`` has all its digits."""
    if value is None or math.isnan(value):
        return Markup("unknown")
    return element("data", _shown(value, digits), value=repr(value))


def _shown(value: float, digits: int) -> str:
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    whole = isinstance(value, int) or (value.is_integer() and abs(value) < 1e9)
    return (f"{value:,.0f}" if whole else f"{value:.{digits}g}").replace("-", "−")


def table(head: Iterable[Content], rows: Iterable[Iterable[Content]], class_: str) -> Markup:
    """Return a table; without a head the first cell of a row is its heading."""
    titles = list(head)
    top = [element("thead", element("tr", *(element("th", title, scope="col") for title in titles)))]
    body = []
    for first, *others in rows:
        start = element("td", first) if titles else element("th", first, scope="row")
        body.append(element("tr", start, *(element("td", cell) for cell in others)))
    return element("table", *(top if titles else []), element("tbody", *body), class_=class_)
