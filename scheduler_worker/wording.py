"""Bounds texts and lists of names in messages, and marks where they were cut."""

from collections.abc import Sequence

SHOWN_CHARACTERS = 80
"""How much of a value a message shows."""
SHOWN_NAMES = 5
"""How many names a message shows."""


def cut(text: str, characters: int = SHOWN_CHARACTERS) -> str:
    """The text, or its beginning and three dots."""
    return text if len(text) <= characters else text[: characters - 3] + "..."


def one_line(text: str) -> str:
    """A text of somebody else for the log: printable ASCII, with the rest escaped."""
    return text.encode("unicode_escape", "replace").decode()


def listed(
    names: Sequence[str], most: int = SHOWN_NAMES, between: str = ", ", more: int = 0
) -> str:
    """The names with commas between them, or the first ones and how many more there are.

    ``more`` is how many are not among ``names``.
    """
    shown, more = between.join(names[:most]), more + max(0, len(names) - most)
    return f"{shown} and {more} more" if more else shown
