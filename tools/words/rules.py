"""What is wrong with sentences: their length, their words, and paths instead of titles."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from words.texts import Block, without_code

LONG = 25
TOO_LONG = 40
SEMICOLONS = 1
"""How many a paragraph may have."""
SHARE = 0.04
"""The share of sentences that may have more than ``LONG`` words."""
_PATH = re.compile(r"(?:docs/[\w./-]+|README|ARCHITECTURE|CHANGELOG)\.md")
_LINK = re.compile(r"\[([^\]]*)\]\([^)]*\)")


class Violation(NamedTuple):
    """What is wrong, and on which line."""

    line: int
    text: str


class Count(NamedTuple):
    """How many sentences there are, and how many of them are long."""

    sentences: int = 0
    long: int = 0
    too_long: int = 0

    @property
    def is_within_bounds(self) -> bool:
        return self.long <= SHARE * self.sentences and not self.too_long

    def __str__(self) -> str:
        share = 100 * self.long / max(self.sentences, 1)
        return (
            f"{self.sentences} sentences, {share:.1f} % over {LONG} words (at most {SHARE:.0%}), "
            f"{self.too_long} over {TOO_LONG}"
        )


def counted(blocks: Sequence[Block]) -> Count:
    """The lengths of all sentences."""
    words = [sentence.words for block in blocks for sentence in block.sentences()]
    return Count(
        len(words), sum(each > LONG for each in words), sum(each > TOO_LONG for each in words)
    )


def long_sentences(blocks: Sequence[Block], above: int) -> Iterator[Violation]:
    """Each sentence of more words, with its beginning."""
    for block in blocks:
        for sentence in block.sentences():
            if sentence.words > above:
                text = f"{sentence.words} words, at most {LONG}: {sentence.text[:60]}..."
                yield Violation(sentence.line, text)


class Word(NamedTuple):
    """A word that is not used: its expression, what to write instead, where it is right."""

    pattern: re.Pattern[str]
    use: str
    excepted: re.Pattern[str] | None

    def found(self, text: str) -> Iterator[str]:
        """Its uses in a sentence, but for the excepted phrases."""
        phrases = self.excepted.finditer(text) if self.excepted else ()
        right = {place for phrase in phrases for place in range(*phrase.span())}
        yield from (use[0] for use in self.pattern.finditer(text) if use.start() not in right)


def words(table: Mapping[str, Mapping[str, Any]]) -> list[Word]:
    """The words as ``words.toml`` declares them. Raises KeyError for one without a ``use``."""
    return [
        Word(
            _compiled(text),
            entry["use"],
            _compiled("|".join(entry["except"])) if "except" in entry else None,
        )
        for text, entry in table.items()
    ]


def _compiled(text: str) -> re.Pattern[str]:
    start = "" if text.startswith((",", "^")) else r"\b"
    return re.compile(f"{start}(?:{text})(?!\\w)", re.IGNORECASE)


def wrong_words(blocks: Sequence[Block], table: Sequence[Word]) -> Iterator[Violation]:
    """Each use of a word that is not the field's."""
    for block in blocks:
        for line, text in block.sentences():
            for word in table:
                for found in word.found(text):
                    yield Violation(line, f"{found!r}: write {word.use}: {text[:60]}...")


def many_semicolons(blocks: Sequence[Block]) -> Iterator[Violation]:
    """Each paragraph that joins more than two sentences into one."""
    for block in blocks:
        if block.text.count(";") > SEMICOLONS:
            yield Violation(block.line, f"more than {SEMICOLONS} semicolon: {block.text[:60]!r}...")


def paths_as_links(text: str) -> Iterator[Violation]:
    """Each path of a page that a document names where it could link the title."""
    for number, line in enumerate(without_code(text), 1):
        titles = " ".join(_LINK.sub(r"\1", line).split())
        for found in _PATH.finditer(titles):
            yield Violation(number, f"{found[0]} is a path: link the page by its title")
