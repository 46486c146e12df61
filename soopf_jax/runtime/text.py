"""Formats values for tables: numbers, counts, intervals, p-values and names that are safe to print."""

from collections.abc import Sequence
from pathlib import Path

UNDEFINED = "-"
"""The text for an undefined value."""


def number(value: float | None, digits: int = 3) -> str:
    """`0.874`, or a dash for an undefined value."""
    return UNDEFINED if value is None else f"{value:.{digits}f}"


def count(n: int | float, noun: str) -> str:
    """`1 restart`, `5 restarts`. A whole number of a JSON file can be a float."""
    return f"{n} {noun}" if n == 1 else f"{n} {noun}s"


def shortened(text: str, length: int) -> str:
    """The text, or its beginning and its end if it is longer than this."""
    if len(text) <= length:
        return text
    end = (length - 3) * 2 // 3  # the end of a plug-in's address tells more than its beginning
    return f"{text[: length - 3 - end]}...{text[-end:]}"


def signed(difference: float | None) -> str:
    """`+0.012`, or a dash for an undefined value."""
    return UNDEFINED if difference is None else f"{difference:+.3f}"


def interval(ci95: Sequence[float] | None, digits: int = 3) -> str:
    """`[0.861, 0.887]`, or a dash for an undefined interval."""
    return f"[{ci95[0]:.{digits}f}, {ci95[1]:.{digits}f}]" if ci95 else UNDEFINED


def p_value(p: float | None) -> str:
    """`0.0031`, with two significant digits, or a dash for an undefined value."""
    return UNDEFINED if p is None else f"{p:.2g}"


def printable(text: str) -> str:
    """The text without control characters. Names come from files, and a terminal would obey escape sequences."""
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)


def is_address(place: str | Path | None) -> bool:
    """Whether a place is an fsspec address such as `s3://bucket/prefix`, and not a path."""
    return "://" in str(place)
