"""Collects what is wrong with one kind of text, and sums it up."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from words.rules import (
    LONG,
    Count,
    Violation,
    Word,
    counted,
    long_sentences,
    many_semicolons,
    wrong_words,
)
from words.texts import Block


def files(root: Path) -> list[Path]:
    """All documents, and the modules of the package."""
    documents = [*root.glob("*.md"), *(root / "docs").rglob("*.md")]
    return sorted(documents) + sorted((root / "scheduler_worker").rglob("*.py"))


class Report:
    """The documents, the docstrings, or the messages."""

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._count = Count()
        self._violations: list[tuple[str, Violation]] = []
        self._long: list[tuple[str, Violation]] = []

    @property
    def is_right(self) -> bool:
        """Whether nothing is wrong; some sentences may be long."""
        return not self._violations and self._count.is_within_bounds

    def add(self, place: str, blocks: Sequence[Block], table: Sequence[Word]) -> None:
        """Judge the sentences of a file."""
        count = counted(blocks)
        self._count = Count(*map(sum, zip(self._count, count, strict=True)))
        self._long += ((place, each) for each in long_sentences(blocks, LONG))
        self.complain(place, wrong_words(blocks, table))
        self.complain(place, many_semicolons(blocks))

    def complain(self, place: str, violations: Iterable[Violation]) -> None:
        """Add what is wrong in a file."""
        self._violations += ((place, each) for each in violations)

    def lines(self) -> Iterator[str]:
        """Each violation, and a summary at the end.

        As long as few sentences are long, only the longest of them are violations.
        """
        some = self._violations
        if not self._count.is_within_bounds:
            some = [*some, *self._long]
        for place, (line, text) in sorted(some):
            yield f"{place}:{line}: {text}"
        yield f"{self._kind}: {self._count}; {len(self._violations)} other violations"
