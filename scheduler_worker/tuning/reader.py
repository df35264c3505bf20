"""Reads a policy: YAML nodes to a ``TuningPolicy``.

The shape is checked here, key by key; :mod:`~.check` resolves the names.
"""

import math
import re
from collections.abc import Callable, Iterator
from functools import partial
from typing import TypeVar

from scheduler_worker.model.issues import Kind
from scheduler_worker.tuning import yaml_subset
from scheduler_worker.tuning.expressions import (
    FUNCTIONS,
    KEYWORDS,
    NAME,
    NUMBER,
    UNKNOWN,
    Expr,
    parse,
)
from scheduler_worker.tuning.issues import Issues, below, closest, hinted, quoted
from scheduler_worker.tuning.tuning_policy import (
    Condition,
    Joined,
    Named,
    Rate,
    Rule,
    Scope,
    TuningPolicy,
)
from scheduler_worker.tuning.yaml_subset import Mapping, Node, Scalar, Sequence, Source

MAX_RULES = 1000
MAX_CONDITION_NESTING = 8
RULE_KEYS = frozenset({
    "output", "target", "min", "max", "function", "when", "when_any", "when_all", "influence",
    "min_absolute_change", "min_relative_change", "max_absolute_change", "max_relative_change",
})  # fmt: skip
UNITS_S = {
    **dict.fromkeys(("ms", "msec", "msecs"), 0.001),
    **dict.fromkeys(("", "s", "sec", "secs", "second", "seconds"), 1.0),
    **dict.fromkeys(("m", "min", "mins", "minute", "minutes"), 60.0),
    **dict.fromkeys(("h", "hour", "hours"), 3600.0),
    **dict.fromkeys(("d", "day", "days"), 86400.0),
}
"""Unit of time -> its length in seconds."""
_TIME = re.compile(rf"({NUMBER})[ \t]*([a-z]*)")
_NAME = re.compile(NAME)
_OUTPUT = re.compile(rf"{NAME}(?:\.{NAME})+")
_Read = TypeVar("_Read")


def read(source: Source, issues: Issues) -> TuningPolicy | None:
    """Return the policy in a text; None, with issues, when the text is not a YAML mapping.

    Raises TuningPolicyError: there are too many issues to continue.
    """
    root = yaml_subset.read(source, issues)
    return _Reader(source, issues).policy(root) if root else None


class _Reader:
    """Reads node by node; each method reports issues and returns what it could read."""

    def __init__(self, source: Source, issues: Issues) -> None:
        self._source = source
        self._issues = issues

    def policy(self, root: Mapping) -> TuningPolicy:
        """``document = scope vars? conditions? rules``."""
        fields = self._fields(root, "", {"scope", "vars", "conditions", "rules"})
        scope = self._scope(root)
        names: dict[str, Named] = {}
        for key, read_value in (("vars", self._expr), ("conditions", self._condition)):
            for name, path, value in self._named(fields.get(key), key):
                if name.text in names:
                    message = f"{quoted(name.text)} is already a var; conditions share their names"
                    self._issues.add(Kind.NAME, name.place, path, message)
                definition = read_value(value, path) or _unknown(name, path)
                names.setdefault(name.text, Named(name, path, definition, key == "conditions"))
        groups = [fields.get(key) for key in ("vars", "conditions")]
        complete = root.complete and all(
            group is None or (isinstance(group, Mapping) and group.complete) for group in groups
        )
        return TuningPolicy(self._source, scope, names, self._rules(root, fields), complete)

    def _scope(self, root: Mapping) -> Scope:
        """``scope = "Host" | "VM" | "VM.disk"``."""
        _, node = root.entries.get("scope", (root, root))
        if isinstance(node, Scalar) and node.text in set(Scope):
            return Scope(node.text)
        message = f"scope must be one of: {', '.join(Scope)}"
        if node is root:
            self._absent(root, Kind.SCOPE, root, "scope", message)
        else:
            self._report(Kind.SCOPE, node, "scope", message)
        return Scope.VM

    def _rules(self, root: Mapping, fields: dict[str, Node]) -> tuple[Rule, ...]:
        """``rules = { NAME: rule, ... }``, at least one."""
        if "rules" not in root.entries:
            self._absent(root, Kind.SCHEMA, root, "rules", "a policy must have rules")
            return ()
        named = list(self._named(fields.get("rules"), "rules", at_least_one=True))
        if len(named) > MAX_RULES:
            message = f"a file has at most {MAX_RULES} rules, not {len(named)}"
            self._issues.add(Kind.LIMIT, named[MAX_RULES][0].place, "rules", message)
            return ()
        rules = (self._rule(name, path, node) for name, path, node in named)
        return tuple(rule for rule in rules if rule)

    def _rule(self, name: Scalar, path: str, node: Node) -> Rule | None:
        """``rule = output target? min? max? function? when? limits? influence?``."""
        if not isinstance(node, Mapping):
            self._schema(node, path, "a rule must be a mapping")
            return None
        fields = self._fields(node, path, RULE_KEYS)

        def read_key(key: str, read_value: Callable[[Node, str], _Read]) -> _Read | None:
            return read_value(fields[key], f"{path}.{key}") if key in fields else None

        if "output" not in node.entries:
            self._absent(node, Kind.SCHEMA, name, path, "a rule must have an output")
        bounds = len(node.entries.keys() & {"min", "max"})
        if "target" not in node.entries and bounds != 1:
            message = "a rule must have a target, or exactly one of min and max to stand for it"
            self._absent(node, Kind.SCHEMA, name, path, message)
        whens = (
            read_key("when", self._condition),
            read_key("when_any", partial(self._joined, "or")),
            read_key("when_all", partial(self._joined, "and")),
        )
        triggers = tuple(when for when in whens if when)
        output = read_key("output", self._output)
        return Rule(
            name=name.text,
            output=output or name,
            target=read_key("target", self._expr),
            minima=read_key("min", self._bound) or (),
            maxima=read_key("max", self._bound) or (),
            function=read_key("function", self._function),
            when=Joined("and", triggers) if triggers else None,
            influence=read_key("influence", self._expr),
            min_absolute_change=read_key("min_absolute_change", self._expr),
            min_relative_change=read_key("min_relative_change", self._expr),
            max_absolute_change=read_key("max_absolute_change", self._absolute),
            max_relative_change=read_key("max_relative_change", self._relative),
        )

    def _output(self, node: Node, path: str) -> Scalar | None:
        """``output = NAME "." NAME { "." NAME }``."""
        if isinstance(node, Scalar) and _OUTPUT.fullmatch(node.text):
            return node
        self._schema(node, path, "an output must be a dotted name, such as cpu.quota")
        return None

    def _bound(self, node: Node, path: str) -> tuple[Expr, ...]:
        """``bound = expr | [ expr, ... ]``."""
        nodes = self._items(node, path) if isinstance(node, Sequence) else [(node, path)]
        return tuple(expr for item, place in nodes if (expr := self._expr(item, place)))

    def _function(self, node: Node, path: str) -> Rate[Expr] | None:
        """``function = "constant" | { name: ..., change | factor: expr, time: TIME }``."""
        if isinstance(node, Scalar) and node.text == "constant":
            return None
        if not isinstance(node, Mapping):
            self._report(Kind.FUNCTION, node, path, "a function must be a mapping with a name")
            return None
        name = self._function_name(node, path)
        if name is None:
            return None
        parameter = {"constant": None, "linear": "change", "exponential": "factor"}[name]
        known = {parameter, "time"} if parameter else set()
        fields = self._fields(node, path, {"name", "type", *known}, Kind.FUNCTION)
        if parameter is None:
            return None
        value = self._required(node, fields, parameter, path, Kind.FUNCTION, self._expr)
        time_s = self._required(node, fields, "time", path, Kind.FUNCTION, self._time)
        return None if value is None or time_s is None else Rate(name, value, time_s)

    def _function_name(self, node: Mapping, path: str) -> str | None:
        """``name = "constant" | "linear" | "exponential"``, under the key name or type."""
        written = [node.entries[key][1] for key in ("name", "type") if key in node.entries]
        texts = {entry.text if isinstance(entry, Scalar) else None for entry in written}
        name = texts.pop() if len(texts) == 1 else None
        if name in {"constant", "linear", "exponential"}:
            return name
        message = "a function's name must be one of: constant, linear, exponential"
        if written:
            self._report(Kind.FUNCTION, written[0], path, message)
        else:
            self._absent(node, Kind.FUNCTION, node, path, message)
        return None

    def _absolute(self, node: Node, path: str) -> Rate[Expr] | None:
        """``max_absolute_change = expr | { value: expr, time: TIME }``; alone it is per second."""
        if isinstance(node, Scalar):
            value = self._expr(node, path)
            return Rate("absolute", value, 1.0) if value else None
        return self._limit(node, path, {"value": "absolute"})

    def _relative(self, node: Node, path: str) -> Rate[Expr] | None:
        """``max_relative_change = { value: expr, time: TIME } | { factor: expr, time: TIME }``."""
        return self._limit(node, path, {"value": "value", "factor": "factor"})

    def _limit(self, node: Node, path: str, keys: dict[str, str]) -> Rate[Expr] | None:
        """The limit under one of the keys, of the kind that belongs to it."""
        if not isinstance(node, Mapping):
            self._schema(node, path, f"a limit must be a mapping of {' or '.join(keys)}, and time")
            return None
        fields = self._fields(node, path, {*keys, "time"})
        chosen = [key for key in keys if key in node.entries]
        if len(chosen) > 1:
            self._schema(node, path, f"has both {' and '.join(chosen)}; give one of them")
            return None
        key = chosen[0] if chosen else "value"
        amount = self._required(node, fields, key, path, Kind.SCHEMA, self._expr)
        time_s = self._required(node, fields, "time", path, Kind.SCHEMA, self._time)
        return None if amount is None or time_s is None else Rate(keys[key], amount, time_s)

    def _condition(self, node: Node, path: str, depth: int = 1) -> Condition | None:
        """``condition = expr | { any: [ condition, ... ] } | { all: [ condition, ... ] }``."""
        if isinstance(node, Sequence):
            message = "a list is ambiguous here: write {any: [...]} or {all: [...]}"
            self._schema(node, path, message)
            return None
        if not isinstance(node, Mapping):
            return self._expr(node, path)
        if depth > MAX_CONDITION_NESTING:
            message = f"conditions are nested deeper than {MAX_CONDITION_NESTING} levels"
            self._report(Kind.LIMIT, node, path, message)
            return None
        fields = self._fields(node, path, {"any", "all"})
        if len(node.entries.keys() & {"any", "all"}) != 1:
            message = "a condition must have exactly one of any and all"
            self._absent(node, Kind.SCHEMA, node, path, message)
            return None
        condition: Condition | None = None
        for key, value in fields.items():
            op = "or" if key == "any" else "and"
            condition = self._joined(op, value, f"{path}.{key}", depth + 1)
        return condition

    def _joined(self, op: str, node: Node, path: str, depth: int = 1) -> Condition:
        """``when_any, when_all, any, all = [ condition, ... ]``."""
        members = (self._condition(item, place, depth) for item, place in self._items(node, path))
        return Joined(op, tuple(member for member in members if member))

    def _expr(self, node: Node, path: str) -> Expr | None:
        """``expr``: :mod:`~.expressions` has its grammar."""
        if isinstance(node, Scalar) and not node.is_null:
            return parse(node, path, self._issues)
        self._schema(node, path, "expected an expression")
        return None

    def _time(self, node: Node, path: str) -> float | None:
        """``TIME = NUMBER unit?``, in seconds without a unit."""
        text = node.text if isinstance(node, Scalar) else ""
        match = _TIME.fullmatch(text.strip()) if len(text) <= 100 else None
        unit_s = UNITS_S.get(match[2]) if match else None
        time_s = float(match[1]) * unit_s if match and unit_s else 0.0
        if 0 < time_s < math.inf:
            return time_s
        message = "a time must be a number above 0 and a unit, such as 30 sec, 1 min, 2 hours"
        self._report(Kind.TIME, node, path, message)
        return None

    def _required(
        self,
        node: Mapping,
        fields: dict[str, Node],
        key: str,
        path: str,
        kind: Kind,
        read_value: Callable[[Node, str], _Read],
    ) -> _Read | None:
        if key in fields:
            return read_value(fields[key], f"{path}.{key}")
        if key not in node.entries:
            self._absent(node, kind, node, path, f"{key} is missing")
        return None

    def _named(
        self, node: Node | None, path: str, *, at_least_one: bool = False
    ) -> Iterator[tuple[Scalar, str, Node]]:
        """Yield key, path and value of each entry of a mapping whose keys are names."""
        if node is None:
            return
        if not isinstance(node, Mapping) or (at_least_one and node.complete and not node.entries):
            self._schema(
                node, path, "must be a mapping from names" + " and not empty" * at_least_one
            )
            return
        for name, (key, value) in node.entries.items():
            within = below(path, name)
            if not _NAME.fullmatch(name) or name in KEYWORDS or name in FUNCTIONS:
                message = f"{quoted(name)} is not a name: letters, digits and _, no reserved word"
                self._issues.add(Kind.NAME, key.place, within, message)
            if isinstance(value, Scalar) and value.is_null:
                self._schema(key, within, "has no value")
            else:
                yield key, within, value

    def _fields(
        self, node: Mapping, path: str, known: set[str] | frozenset[str], kind: Kind = Kind.SCHEMA
    ) -> dict[str, Node]:
        """Return the entries with a known key and a value; report the others."""
        fields: dict[str, Node] = {}
        for name, (key, value) in node.entries.items():
            within = below(path, name)
            if name not in known:
                hint = hinted(closest(name, known))
                self._report(kind, key, within, f"{quoted(name)} is not known here{hint}")
            elif not isinstance(value, Scalar) or not value.is_null:
                fields[name] = value
            elif name != "scope":  # _scope reports that one
                self._schema(key, within, "has no value")
        return fields

    def _items(self, node: Node, path: str) -> list[tuple[Node, str]]:
        if isinstance(node, Sequence) and node.items:
            return [(item, f"{path}[{index}]") for index, item in enumerate(node.items)]
        self._schema(node, path, "must be a list and not empty")
        return []

    def _absent(self, within: Mapping, kind: Kind, node: Node, path: str, message: str) -> None:
        """Report a missing key, unless some key was unreadable: it may be the missing one."""
        if within.complete:
            self._report(kind, node, path, message)

    def _schema(self, node: Node, path: str, message: str) -> None:
        self._report(Kind.SCHEMA, node, path, message)

    def _report(self, kind: Kind, node: Node, path: str, message: str) -> None:
        if type(node) is not Node:  # a bare Node marks what has an issue already
            self._issues.add(kind, node.place, path, message)


def _unknown(key: Scalar, path: str) -> Expr:
    """Stand in for a definition that has an issue, so that uses of its name add no second one."""
    return parse(Scalar(key.source, key.start, key.end, UNKNOWN, False), path, Issues())
