"""Splits expressions into tokens."""

from __future__ import annotations

import math
import re
from typing import NamedTuple

NUMBER = r"(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?"
NAME = r"[A-Za-z_][A-Za-z0-9_]*"
KEYWORDS = frozenset({"and", "else", "false", "if", "not", "or", "true"})
END = "end"

_TOKEN = re.compile(
    rf"""[ \t\r\n]*(?:
        (?P<number>{NUMBER})(?![A-Za-z0-9_.])
      | (?P<name>{NAME}(?:\.{NAME})*)
      | (?P<text>'[^'\\\n]*'|"[^"\\\n]*")
      | (?P<sign><=|>=|==|!=|[-+*/%<>(),])
      | (?P<end>\Z)
    )""",
    re.VERBOSE,
)
_NUMBER_LIKE = re.compile(r"[0-9.][0-9A-Za-z_.]*")


class Token(NamedTuple):
    """``kind`` is number, name, text, end, or the token itself for keywords and signs."""

    kind: str
    text: str
    at: int


class Unreadable(Exception):
    """Raised where no token can be read; ``at`` is the offset."""

    def __init__(self, message: str, at: int) -> None:
        super().__init__(message)
        self.at = at


def tokens(text: str) -> list[Token]:
    """Return the tokens of a text, with END as the last one. Raises Unreadable."""
    found: list[Token] = []
    reached = 0
    while not found or found[-1].kind != END:
        match = _TOKEN.match(text, reached)
        if match is None:
            raise _unreadable(text, reached)
        kind = str(match.lastgroup)
        word = match[kind]
        if kind == "sign" or word in KEYWORDS:
            kind = word
        elif kind == "number" and math.isinf(float(word)):
            raise Unreadable("the number is too large", match.start("number"))
        found.append(Token(kind, word, match.end() - len(word)))
        reached = match.end()
    return found


def _unreadable(text: str, reached: int) -> Unreadable:
    at = reached + len(text[reached:]) - len(text[reached:].lstrip(" \t\r\n"))
    letter = text[at]
    if number := _NUMBER_LIKE.match(text, at):
        return Unreadable(f"{number[0][:20]!r} is not a decimal number", at)
    if letter in "'\"":
        return Unreadable("a text must end on its line and have no backslash in it", at)
    hint = {"&": "; use and", "|": "; use or", "!": "; use not", "=": "; compare with =="}
    return Unreadable(f"unexpected {letter!r}{hint.get(letter, '')}", at)
