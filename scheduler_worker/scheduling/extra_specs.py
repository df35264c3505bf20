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

_NUMERIC: dict[str, Callable[[float, float], bool]] = {
    "=": operator.ge,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
    "<=": operator.le,
}
_TEXT: dict[str, Callable[[str, str], bool]] = {
    "s==": operator.eq,
    "s!=": operator.ne,
    "s<": operator.lt,
    "s<=": operator.le,
    "s>": operator.gt,
    "s>=": operator.ge,
}


def match(value: Value, requirement: str) -> bool:
    """Whether a value meets a requirement.

    Raises ValueError: a numeric operator with a value or operand that is no number, a comparison of
    a text with a list, or ``<or>`` without words.
    """
    name, *operands = requirement.split() or [""]
    if name in _NUMERIC or name in _TEXT:
        return bool(operands) and value is not None and _compare(name, value, operands[0])
    if name == "<in>":
        return bool(operands) and value is not None and operands[0] in value
    if name == "<all-in>":
        return bool(operands) and value is not None and all(word in value for word in operands)
    if name == "<or>":
        return _is_one_of(value, operands)
    return value == requirement


def _compare(name: str, value: Any, operand: str) -> bool:
    try:
        if name in _TEXT:
            return _TEXT[name](value, operand)
        return _NUMERIC[name](float(value), float(operand))
    except TypeError:
        raise ValueError("a list has no order and is no number") from None


def _is_one_of(value: Value, operands: Sequence[str]) -> bool:
    """The words at even indexes are the alternatives; those between them are ignored."""
    if value is None:
        return False
    if not operands:
        raise ValueError("<or> without alternatives")
    return value in operands[::2]


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
_CUSTOM = "CUSTOM_"
_AMOUNT = re.compile(r"\s*\+?[0-9]{1,12}\s*\Z")
_TRAIT_VALUES = frozenset({"required", "forbidden"})


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
            if value in _TRAIT_VALUES:
                traits.setdefault(suffix, {})[name] = value
        elif name in _STANDARD_CLASSES or name.startswith(_CUSTOM):
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
