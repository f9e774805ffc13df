"""Text of users, such as labels and file names, made safe for a terminal."""

from __future__ import annotations


def printable(text: str) -> str:
    """Return the text with characters that would steer a terminal written as escapes of Python.

    Line breaks stay. What is escaped: control characters, marks that change the direction of writing, other
    invisible characters, and lone surrogates, which no encoding can write.
    """
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() or char == "\n" else _escape(char) for char in text)


def printable_json(text: str) -> str:
    """Return JSON of one line with the same characters as JSON escapes: it stays equal JSON."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else _escape_json(char) for char in text)


def _escape(char: str) -> str:
    return char.encode("unicode_escape").decode()


def _escape_json(char: str) -> str:
    units = char.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[i : i + 2].hex()}" for i in range(0, len(units), 2))
