"""How the checkers report violations."""

from collections.abc import Callable

Blame = Callable[[str], None]
