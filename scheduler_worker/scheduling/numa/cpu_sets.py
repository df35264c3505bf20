"""Parses sets of vCPUs.

::

    cpus := item (',' item)*
    item := '^'? number ('-' number)?

Items with ``^`` are removed: from the other items, or from all vCPUs where there are no others. So
``0-3,^2`` is 0, 1 and 3, and ``^0`` is all but 0.
"""

from __future__ import annotations

import re

_ITEM = re.compile(r"\s*(\^?)([0-9]{1,5})(?:-([0-9]{1,5}))?\s*\Z")


def cpu_set(text: str, every: frozenset[int]) -> frozenset[int]:
    """The vCPUs of ``every`` that a text names.

    Raises:
        ValueError: names the item that is invalid.

    """
    named: dict[bool, set[int]] = {False: set(), True: set()}
    for item in text.split(","):
        matched = _ITEM.match(item)
        if not matched:
            raise ValueError(
                f"{item.strip()[:40]!r} is no CPU, range of CPUs, or one of them with ^"
            )
        low, high = int(matched[2]), int(matched[3] or matched[2])
        if low > high or high not in every:
            raise ValueError(f"{item.strip()} is not within the {len(every)} vCPUs")
        named[bool(matched[1])].update(range(low, high + 1))
    return (frozenset(named[False]) or every) - named[True]
