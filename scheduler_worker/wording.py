"""Bounds texts and lists of names in messages, and escapes what would steer a terminal."""

from collections.abc import Sequence

SHOWN_CHARACTERS = 80
"""How much of a value a message shows."""
SHOWN_NAMES = 5
"""How many names a message shows."""


def cut(text: str, characters: int = SHOWN_CHARACTERS) -> str:
    """The text, or its beginning and three dots."""
    return text if len(text) <= characters else text[: characters - 3] + "..."


def one_line(text: str) -> str:
    r"""A text with names that others chose, as it is shown: letters of any script stay.

    What steers a terminal, ends a line, reorders a text or is invisible is escaped: ``\x1b``.
    """
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else _escaped(each) for each in text)


def lines(text: str) -> str:
    """A text of several lines, each as :func:`one_line` shows it."""
    return "\n".join(map(one_line, text.split("\n")))


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode()


def listed(
    names: Sequence[str], most: int = SHOWN_NAMES, between: str = ", ", more: int = 0
) -> str:
    """The names with commas between them, or the first ones and how many more there are.

    ``more`` is how many are not among ``names``.
    """
    shown, more = between.join(names[:most]), more + max(0, len(names) - most)
    return f"{shown} and {more} more" if more else shown


def duration(seconds: float) -> str:
    """Such as ``42 s``, ``3 min 5 s``, ``2 d 4 h``; less than 10 s with a decimal."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    remaining = round(seconds)
    parts: list[str] = []
    for name, length in (("d", 86_400), ("h", 3600), ("min", 60), ("s", 1)):
        count, remaining = divmod(remaining, length)
        if count or parts:
            parts.append(f"{count} {name}")
    return " ".join(parts[:2])
