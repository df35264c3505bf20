"""The grammar of extra specs: requirements that are matched with a value, and resource requests.

::

    requirement := literal                    exactly the value
                 | NUMERIC number             '=' and '>=' at least, '==', '!=', '<='
                 | TEXT word                  's==' 's!=' 's<' 's<=' 's>' 's>='
                 | '<in>' word                a substring of the value (or an element of a list)
                 | '<all-in>' word+           each is part of the value
                 | '<or>' word ('<or>' word)* equal to one of the words

    resources[S]:CLASS = amount               the amount of a resource class; 0: none
    trait[S]:TRAIT = 'required' | 'forbidden' a trait that its provider must or must not have

Words are separated by white space. A text that does not begin with an operator is a literal; there
is no '<' and no '>'. ``S``, the suffix, consists of letters, digits, ``_`` and ``-``. Amounts that
are no numbers, unknown classes and other values are ignored.
"""

import operator
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from scheduler_worker.model.requests import Flavor
from scheduler_worker.model.sizes import MAX_SIZE

Value = str | Sequence[str] | None
Operator = Callable[[Any, Sequence[str]], bool]


def _of_numbers(test: Callable[[float, float], bool]) -> Operator:
    return lambda value, words: test(float(value), float(words[0]))


def _of_texts(test: Callable[[str, str], bool]) -> Operator:
    return lambda value, words: test(value, words[0])


COMPARISONS: Mapping[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    "==": operator.eq,
    "!=": operator.ne,
    ">": operator.gt,
    ">=": operator.ge,
}
_OPERATORS: dict[str, Operator] = {
    "=": _of_numbers(operator.ge),
    **{sign: _of_numbers(COMPARISONS[sign]) for sign in (">=", "==", "!=", "<=")},
    **{f"s{sign}": _of_texts(test) for sign, test in COMPARISONS.items()},
    "<in>": lambda value, words: words[0] in value,
    "<all-in>": lambda value, words: all(word in value for word in words),
    # The words at even indexes are the alternatives; those between them are ignored.
    "<or>": lambda value, words: value in words[::2],
}


def match(value: Value, requirement: str) -> bool:
    """Whether a value meets a requirement.

    Raises ValueError: a numeric operator with a value or operand that is no number, a comparison of
    a text with a list, or ``<or>`` without words.
    """
    name, *operands = requirement.split() or [""]
    if name not in _OPERATORS:
        return value == requirement
    if name == "<or>" and value is not None and not operands:
        raise ValueError("<or> without alternatives")
    try:
        return value is not None and bool(operands) and _OPERATORS[name](value, operands)
    except TypeError:
        raise ValueError("a list has no order and is no number") from None


def meets(value: Value, requirement: str) -> bool:
    """The same, but a text where the operator needs a number does not meet the requirement."""
    try:
        return match(value, requirement)
    except ValueError:
        return False


_STANDARD_CLASSES = frozenset(
    {
        *("VCPU", "MEMORY_MB", "DISK_GB", "PCPU", "PCI_DEVICE", "SRIOV_NET_VF", "VGPU", "FPGA"),
        *("PGPU", "VGPU_DISPLAY_HEAD", "MEM_ENCRYPTION_CONTEXT", "IPV4_ADDRESS"),
        *("NUMA_SOCKET", "NUMA_CORE", "NUMA_THREAD", "NUMA_MEMORY_MB"),
        *("NET_BW_EGR_KILOBIT_PER_SEC", "NET_BW_IGR_KILOBIT_PER_SEC"),
        "NET_PACKET_RATE_KILOPACKET_PER_SEC",
        "NET_PACKET_RATE_EGR_KILOPACKET_PER_SEC",
        "NET_PACKET_RATE_IGR_KILOPACKET_PER_SEC",
    }
)
_SPEC = re.compile(r"(resources|trait)([A-Za-z0-9_-]{0,64}):(.+)\Z")
_AMOUNT = re.compile(r"\s*\+?[0-9]{1,12}\s*\Z")


def parsed(
    extra_specs: Mapping[str, str],
) -> tuple[dict[str, dict[str, int]], dict[str, dict[str, str]]]:
    """By suffix: resource class -> amount, and trait -> required or forbidden."""
    resources: dict[str, dict[str, int]] = {}
    traits: dict[str, dict[str, str]] = {}
    for key, value in extra_specs.items():
        matched = _SPEC.match(key) if key.startswith(("resources", "trait")) else None
        if matched is None:
            continue
        kind, suffix, name = matched.groups()
        if kind == "trait":
            if value in {"required", "forbidden"}:
                traits.setdefault(suffix, {})[name] = value
        elif name in _STANDARD_CLASSES or name.startswith("CUSTOM_"):
            amount = _amount(value)
            if amount is not None:
                resources.setdefault(suffix, {})[name] = amount
    return resources, traits


def amount_set(flavor: Flavor, resource_class: str) -> int | None:
    """The amount that ``resources:CLASS`` sets for Placement; None: it sets none."""
    text = flavor.extra_specs.get(f"resources:{resource_class}")
    return None if text is None else _amount(text)


def _amount(text: str) -> int | None:
    return min(int(text), MAX_SIZE) if _AMOUNT.match(text) else None
