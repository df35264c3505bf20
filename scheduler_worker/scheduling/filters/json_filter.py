"""The filter for queries about host attributes, written in JSON.

The grammar of the scheduler hint ``query``:

::

    query    := nothing                          [], {}, null, 0, false, "": every host passes
              | call
    call     := [operator, argument*]
    argument := call                             its result
              | "$name"("." name)*               an attribute of the host, then keys in it
              | any other JSON                   itself
    operator := "=" | "<" | ">" | "<=" | ">="    the first argument against each of the others
              | "in"                             the first argument is one of the others
              | "not"                            a list: the negation of each argument
              | "or" | "and"                     any, all of the arguments

Before the operator is applied, it drops arguments that are null, an empty text, or an attribute
that the host does not have. A comparison of fewer than two is false, an ``or`` of none is false, an
``and`` of none is true. A host passes when the result is true. A list passes as the whole result
when an element is true, and counts as true inside another call when it is not empty: so ``["not",
["not", x]]`` never passes. An empty list inside a call is true.

Values without an order, such as a number and a text, cannot be compared by ``<``, and a number or a
text has no keys: a host whose evaluation needs either does not pass.
"""

import json
from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from scheduler_worker.errors import RequestError
from scheduler_worker.model.hosts import Hosts, HostState, Mask
from scheduler_worker.model.requests import RequestSpec
from scheduler_worker.scheduling.extra_specs import COMPARISONS
from scheduler_worker.scheduling.host_attributes import ATTRIBUTES, attribute
from scheduler_worker.scheduling.plugin import Filter
from scheduler_worker.wording import cut

MAX_CALLS = 64
"""The most calls of a query; each is made for every host."""
MAX_DEPTH = 32
"""The deepest nesting of calls."""

Value = Any
Term = Callable[[HostState], Value]
"""A part of a query as a function of a host; it returns None to be left out."""
Operator = Callable[[Sequence[Value]], Value]


def _compares(test: Callable[[Value, Value], bool]) -> Operator:
    def compare(values: Sequence[Value]) -> bool:
        # All are compared, whatever the first results are: some may have no order.
        results = [test(values[0], value) for value in values[1:]]
        return bool(results) and all(results)

    return compare


_OPERATORS: dict[str, Operator] = {
    "=": _compares(COMPARISONS["=="]),
    **{sign: _compares(COMPARISONS[sign]) for sign in ("<", ">", "<=", ">=")},
    "in": lambda values: len(values) > 1 and values[0] in values[1:],
    "not": lambda values: [not value for value in values],
    "or": any,
    "and": all,
}


def matches(query: Term | None, host: HostState) -> bool:
    """Whether the host passes."""
    try:
        result = query is None or query(host)
    except TypeError:
        return False  # values without an order, or with nothing in them
    return any(result) if isinstance(result, list) else bool(result)


def read(text: str) -> Term | None:
    """Parses a query; None: every host passes.

    Raises ValueError: the text is no JSON, no query, of too many calls or nested too deeply.
    """
    if text.count("[") > MAX_CALLS:
        raise ValueError(f"has more than {MAX_CALLS} calls")
    try:
        query = json.loads(text or "null", parse_constant=_refuse)
    except (ValueError, RecursionError):
        raise ValueError("is not JSON") from None
    return _call(query, MAX_DEPTH) if query else None


def _refuse(constant: str) -> Value:
    raise ValueError(constant)


def _call(query: Value, depth: int) -> Term:
    if not isinstance(query, list):
        raise ValueError('is not a list such as ["=", "$host", "h1"]')  # noqa: TRY004
    if not depth:
        raise ValueError(f"has more than {MAX_DEPTH} calls within calls")
    name, *arguments = query
    operate = _OPERATORS.get(name) if isinstance(name, str) else None
    if operate is None:
        known = ", ".join(_OPERATORS)
        raise ValueError(f"has the operator {str(name)[:40]!r}; known are {known}")
    terms = [_argument(argument, depth - 1) for argument in arguments]

    return lambda host: operate([value for term in terms if (value := term(host)) is not None])


def _argument(argument: Value, depth: int) -> Term:
    if isinstance(argument, list):
        return _call(argument, depth) if argument else lambda _: True
    if isinstance(argument, str) and argument.startswith("$"):
        return _attribute(*argument[1:].split("."))
    constant = None if argument == "" else argument
    return lambda _: constant


def _attribute(name: str, *keys: str) -> Term:
    if name not in ATTRIBUTES:
        return lambda _: None
    read: Term = _service if name == "service" else lambda host: attribute(host, name)
    return (lambda host: _item(read(host), keys)) if keys else read


def _service(host: HostState) -> Value:
    """The compute service, with the fields that follow from the host and need not be reported."""
    known = {
        "host": host.host,
        "binary": "nova-compute",
        "topic": "compute",
        "disabled": host.service_disabled,
        "forced_down": host.service_forced_down,
    }
    return known | dict(host.service)


def _item(value: Value, keys: Sequence[str]) -> Value:
    for key in keys:
        if value is None:
            return None
        if not isinstance(value, Mapping):
            raise TypeError(f"there is no {key} in it")
        value = value.get(key)
    return value


HINT = "query"


class JsonFilter(Filter):
    """Passes hosts that match the JSON query in the scheduler hint ``query``.

    ``$host_ip`` is an address and ``$updated`` a time: as in Nova, no text or number equals them.

    Reads: any attribute of the host; the hint ``query``.
    Example: ``openstack server create --hint query='[">=", "$free_ram_mb", 1024]' ...``
    """

    looks_at_rows = True

    def applies(self, spec: RequestSpec) -> bool:
        return _query(_text(spec)) is not None

    def reads(self, spec: RequestSpec) -> Hashable:
        return _text(spec)

    def passes(self, hosts: Hosts, spec: RequestSpec) -> Mask:
        query = _query(_text(spec))
        answers = (matches(query, host) for host in hosts.states())
        return np.fromiter(answers, bool, len(hosts))

    def host_passes(self, host_state: HostState, spec_obj: RequestSpec) -> bool:
        return matches(_query(_text(spec_obj)), host_state)

    def reason(self, host_state: HostState, spec: RequestSpec) -> str:
        return f"does not match {cut(_text(spec), 200)}"


def _text(spec: RequestSpec) -> str:
    text = spec.hint(HINT) or ""
    if isinstance(text, list):
        raise RequestError(f"spec_obj.scheduler_hints.{HINT}", f"is given {len(text)} times")
    return text


@lru_cache(maxsize=64)
def _query(text: str) -> Term | None:
    try:
        return read(text)
    except ValueError as error:
        raise RequestError(f"spec_obj.scheduler_hints.{HINT}", str(error)) from None
