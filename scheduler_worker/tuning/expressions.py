"""Parses expressions: text to a list of steps in the order of their evaluation.

An expression is not a tree: each step refers to the earlier steps whose results it takes, and the
last one is the result. So nothing after the parser recurses, however the text is nested.

::

    expr  = or [ "if" or "else" expr ]
    or    = and { "or" and }      and  = not { "and" not }      not = { "not" } cmp
    cmp   = sum [ ("<" | "<=" | ">" | ">=" | "==" | "!=") sum ]
    sum   = term { ("+" | "-") term }      term = unary { ("*" | "/" | "%") unary }
    unary = { "-" | "+" } atom
    atom  = NUMBER | TEXT | "true" | "false" | NAME { "." NAME } | call | "(" expr ")"
    call  = FUNC "(" expr { "," expr } ")"
"""

import math
import re
from collections.abc import Callable
from functools import reduce
from typing import NamedTuple

import msgspec

from scheduler_worker.model.issues import Kind, Place
from scheduler_worker.tuning.issues import Issues, quoted
from scheduler_worker.tuning.yaml_subset import Scalar

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


class _Refused(Exception):
    """Raised when the text is not an expression."""

    def __init__(self, kind: Kind, message: str, at: int) -> None:
        super().__init__(message)
        self.kind = kind
        self.at = at


def tokens(text: str) -> list[Token]:
    """Return the tokens of a text, with END as the last one. Raises _Refused."""
    result: list[Token] = []
    reached = 0
    while not result or result[-1].kind != END:
        match = _TOKEN.match(text, reached)
        if match is None:
            raise _unreadable(text, reached)
        kind = str(match.lastgroup)
        word = match[kind]
        if kind == "sign" or word in KEYWORDS:
            kind = word
        elif kind == "number" and math.isinf(float(word)):
            raise _Refused(Kind.SYNTAX, "the number is too large", match.start("number"))
        result.append(Token(kind, word, match.end() - len(word)))
        reached = match.end()
    return result


def _unreadable(text: str, reached: int) -> _Refused:
    at = reached + len(text[reached:]) - len(text[reached:].lstrip(" \t\r\n"))
    letter = text[at]
    if number := _NUMBER_LIKE.match(text, at):
        return _Refused(Kind.SYNTAX, f"{number[0][:20]!r} is not a decimal number", at)
    if letter in "'\"":
        return _Refused(Kind.SYNTAX, "a text must end on its line and have no backslash in it", at)
    hint = {"&": "; use and", "|": "; use or", "!": "; use not", "=": "; compare with =="}
    return _Refused(Kind.SYNTAX, f"unexpected {letter!r}{hint.get(letter, '')}", at)


UNKNOWN = "unknown.unknown"
"""A property that stands for an expression with an issue."""
MAX_LENGTH = 2000
MAX_NODES = 500
MAX_DEPTH = 40

FUNCTIONS: dict[str, int | None] = {
    "abs": 1,
    "ceil": 1,
    "default": 2,
    "floor": 1,
    "max": None,
    "min": None,
    "valid": None,
}
"""Function -> its number of arguments; None: any number."""
_COMPARISONS = frozenset({"<", "<=", ">", ">=", "==", "!="})
_NOT, _COMPARISON, _UNARY = 3, 4, 7
_BETWEEN = frozenset({"(", ")", ",", "else", END})
"""Tokens that are neither an operation nor a value of their own."""
_BINDING = {"or": 1, "and": 2, **dict.fromkeys(_COMPARISONS, _COMPARISON)}
_BINDING |= {"+": 5, "-": 5, "*": 6, "/": 6, "%": 6}
"""The precedence of each operator; ``not`` has 3, a sign 7."""


class Step(msgspec.Struct, frozen=True):
    """One operation: on the results of earlier steps, or on a value.

    ``op`` is ``constant`` (a number or a text), ``name`` (a name of the same file), ``property``
    (a dotted name), an operator, or a function; ``negative`` is the sign.
    """

    op: str
    args: tuple[int, ...] = ()
    value: float | str = 0.0
    at: int = 0
    """The offset in the expression's text."""


class Expr(msgspec.Struct, frozen=True, eq=False):
    """A parsed expression."""

    scalar: Scalar
    path: str
    steps: tuple[Step, ...]

    def place(self, step: int = 0) -> Place:
        """Return the place of a step in its file."""
        return self.scalar.place_of(self.steps[step].at)


def parse(scalar: Scalar, path: str, issues: Issues) -> Expr:
    """Return the expression in a scalar; with an issue, one that is the property ``UNKNOWN``."""
    try:
        steps = _Parser(scalar.text).parsed()
    except _Refused as error:
        issues.add(error.kind, scalar.place_of(error.at), path, str(error))
        steps = (Step("property", value=UNKNOWN),)
    return Expr(scalar, path, steps)


class _Parser:
    """A precedence-climbing parser; each method reads the rule it names and returns its step."""

    def __init__(self, text: str) -> None:
        if len(text) > MAX_LENGTH:
            raise _Refused(Kind.LIMIT, f"is longer than {MAX_LENGTH} characters", 0)
        self._tokens = tokens(text)
        nodes = [token for token in self._tokens if token.kind not in _BETWEEN]
        if len(nodes) > MAX_NODES:
            message = f"has more than {MAX_NODES} operations and values"
            raise _Refused(Kind.LIMIT, message, nodes[MAX_NODES].at)
        self._next = 0
        self._depth = 0
        self._steps: list[Step] = []

    def parsed(self) -> tuple[Step, ...]:
        """``text = expr END``."""
        if self._peek.kind == END:
            raise _Refused(Kind.SYNTAX, "expected an expression", 0)
        self._expr()
        self._expect(END)
        return tuple(self._steps)

    def _expr(self) -> int:
        """``expr = or [ "if" or "else" expr ]``."""
        self._deeper(self._peek)
        result = self._chain(0)
        if token := self._take("if"):
            condition = self._chain(0)
            self._expect("else")
            result = self._step("if", condition, result, self._expr(), at=token.at)
        self._depth -= 1
        return result

    def _chain(self, minimum: int) -> int:
        """``or, and, cmp, sum, term = operand { operator operand }``, above a precedence."""
        result = self._operand(minimum)
        while (binding := _BINDING.get(self._peek.kind, 0)) > minimum:
            token = self._advance()
            result = self._step(token.kind, result, self._chain(binding), at=token.at)
            if binding == _COMPARISON and self._peek.kind in _COMPARISONS:
                raise self._syntax("comparisons cannot be chained; join them with and", self._peek)
        return result

    def _operand(self, minimum: int) -> int:
        """``not = "not" not | cmp    unary = ("-" | "+") unary | atom``."""
        token = self._peek
        if token.kind == "not" and minimum < _COMPARISON:
            return self._prefix("not", _NOT)
        if token.kind == "-":
            return self._prefix("negative", _UNARY)
        if token.kind == "+":
            return self._prefix("positive", _UNARY)
        return self._atom()

    def _prefix(self, op: str, binding: int) -> int:
        """``prefix = ("not" | "-" | "+") operand``."""
        token = self._advance()
        self._deeper(token)
        result = self._step(op, self._chain(binding), at=token.at)
        self._depth -= 1
        return result

    def _atom(self) -> int:
        """``atom = NUMBER | TEXT | "true" | "false" | NAME | call | "(" expr ")"``."""
        token = self._advance()
        if token.kind == "number":
            return self._step("constant", value=float(token.text), at=token.at)
        if token.kind == "text":
            return self._step("constant", value=token.text[1:-1], at=token.at)
        if token.kind in {"true", "false"}:
            return self._step("constant", value=float(token.kind == "true"), at=token.at)
        if token.kind == "name":
            return self._call(token) if self._peek.kind == "(" else self._name(token)
        if token.kind == "(":
            result = self._expr()
            self._expect(")")
            return result
        raise self._syntax(f"expected a value, found {_shown(token)}", token)

    def _name(self, token: Token) -> int:
        """``name = NAME { "." NAME }``."""
        if token.text in FUNCTIONS:
            raise self._syntax(f"{token.text} is a function; write {token.text}(...)", token)
        if token.text.partition(".")[0] in KEYWORDS:
            raise self._syntax(f"{quoted(token.text)} begins with a reserved word", token)
        op = "property" if "." in token.text else "name"
        return self._step(op, value=token.text, at=token.at)

    def _call(self, token: Token) -> int:
        """``call = FUNC "(" expr { "," expr } ")"``."""
        if token.text not in FUNCTIONS:
            known = ", ".join(FUNCTIONS)
            message = f"{quoted(token.text)} is not a function; known are: {known}"
            raise self._unsupported(message, token)
        operands = self._arguments(self._valid if token.text == "valid" else self._expr)
        arity = FUNCTIONS[token.text]
        if arity is None:
            return self._fold("and" if token.text == "valid" else token.text, operands, token)
        if arity != len(operands):
            message = f"{token.text} takes {arity} argument{'s' * (arity > 1)}, not {len(operands)}"
            raise self._unsupported(message, token)
        return self._step(token.text, *operands, at=token.at)

    def _arguments(self, argument: Callable[[], int]) -> list[int]:
        """``arguments = "(" argument { "," argument } ")"``."""
        self._expect("(")
        arguments = [argument()]
        while self._take(","):
            arguments.append(argument())
        self._expect(")")
        return arguments

    def _valid(self) -> int:
        """``valid = NAME { "." NAME }``."""
        token = self._advance()
        if token.kind != "name" or self._peek.kind not in {",", ")"}:
            raise self._unsupported("the arguments of valid must be names", token)
        return self._step("valid", self._name(token), at=token.at)

    def _fold(self, op: str, arguments: list[int], token: Token) -> int:
        """Combine arguments by a binary operation; a single one still has to be a number."""
        if len(arguments) == 1:
            return self._step("positive", *arguments, at=token.at)
        return reduce(lambda *pair: self._step(op, *pair, at=token.at), arguments)

    def _step(self, op: str, *args: int, value: float | str = 0.0, at: int) -> int:
        self._steps.append(Step(op, args, value, at))
        return len(self._steps) - 1

    def _deeper(self, token: Token) -> None:
        if self._depth > MAX_DEPTH:
            raise _Refused(Kind.LIMIT, f"is nested deeper than {MAX_DEPTH} levels", token.at)
        self._depth += 1

    @property
    def _peek(self) -> Token:
        return self._tokens[self._next]

    def _advance(self) -> Token:
        token = self._peek
        self._next += token.kind != END
        return token

    def _take(self, kind: str) -> Token | None:
        return self._advance() if self._peek.kind == kind else None

    def _expect(self, kind: str) -> None:
        if self._peek.kind == "(" != kind:
            raise self._syntax("only functions can be called", self._peek)
        if not self._take(kind):
            expected = "the end" if kind == END else quoted(kind)
            raise self._syntax(f"expected {expected}, found {_shown(self._peek)}", self._peek)

    def _syntax(self, message: str, token: Token) -> _Refused:
        return _Refused(Kind.SYNTAX, message, token.at)

    def _unsupported(self, message: str, token: Token) -> _Refused:
        return _Refused(Kind.UNSUPPORTED, message, token.at)


def _shown(token: Token) -> str:
    return "the end" if token.kind == END else quoted(token.text)
