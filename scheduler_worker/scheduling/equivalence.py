"""Equivalence classes of requests: those of which all units read the same.

Asking every unit what it reads of a request costs more than updating the few hosts that changed
since the last request of its class, so the class is remembered by the request's encoded content.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable

import msgspec

from scheduler_worker.model.allocation_candidates import ASKED
from scheduler_worker.model.requests import RequestSpec
from scheduler_worker.scheduling.plugin import Unit

_MOST_KNOWN = 4096
_LONGEST_KNOWN = 8192
"""How many requests are remembered, and up to which length in bytes; most have some 500."""

_encode = msgspec.msgpack.Encoder().encode


class EquivalenceClass:
    """Requests of which all units read the same; compared by identity."""

    __slots__ = ("applying", "undeclared")

    def __init__(self, applying: frozenset[Unit], undeclared: frozenset[Unit]) -> None:
        self.applying = applying
        """The units that look at something the request asks for."""
        self.undeclared = undeclared
        """Those of them that do not declare what they read: their answers cannot be kept."""


class EquivalenceClasses:
    """Finds the class of a request for some units."""

    def __init__(self, readers: Iterable[Unit]) -> None:
        self._readers = tuple(readers)
        self._by_content: dict[bytes, EquivalenceClass] = {}
        self._by_reads: dict[Hashable, EquivalenceClass] = {}
        self._last: tuple[RequestSpec, EquivalenceClass] | None = None
        """One pair in one attribute: threads replace it as a whole, so no lock is needed. Instances
        of one request, and several steps of one decision, ask with the same object."""

    def of(self, spec: RequestSpec) -> EquivalenceClass:
        """The class of the request, the same for all its instances. Raises what units raise."""
        last = self._last
        if last is not None and last[0] is spec:
            return last[1]
        content = _content(spec)
        found = self._by_content.get(content) if content else None
        if found is None:
            found = self._asked(spec)
            if content is not None:
                if len(self._by_content) >= _MOST_KNOWN:
                    self._by_content.clear()
                self._by_content[content] = found
        self._last = spec, found
        return found

    def _asked(self, spec: RequestSpec) -> EquivalenceClass:
        applying = frozenset(unit for unit in self._readers if unit.applies(spec))
        # False: does not apply; None: applies and does not declare what it reads.
        reads = tuple(unit.reads(spec) if unit in applying else False for unit in self._readers)
        undeclared = frozenset(
            unit for unit, read in zip(self._readers, reads, strict=True) if read is None
        )
        if len(self._by_reads) >= _MOST_KNOWN:
            self._by_reads.clear()
        return self._by_reads.setdefault(reads, EquivalenceClass(applying, undeclared))


def _content(spec: RequestSpec) -> bytes | None:
    """The request but its instance, encoded; None: too long, or not encodable."""
    # Units whose answers are kept may read that Placement was asked, and not what it answered.
    asked = ASKED if spec.allocation_candidates else None
    plain = msgspec.structs.replace(spec, instance_uuid=None, allocation_candidates=asked)
    try:
        content = _encode(plain)
    except (TypeError, ValueError, OverflowError):
        return None
    return content if len(content) <= _LONGEST_KNOWN else None
