"""Which requests all units judge alike.

To ask every unit what it reads of a request costs more than to judge the few hosts that changed
since the last one of its kind; so what they say is remembered by the request's content.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable

import msgspec

from scheduler_worker.model.requests import RequestSpec
from scheduler_worker.scheduling.plugin import Unit

_MOST_KNOWN = 4096
_LONGEST_KNOWN = 8192
"""How many contents are remembered, and of what length in bytes; most have some 500."""

_encode = msgspec.msgpack.Encoder().encode


class RequestClass:
    """What requests have in common that the units read alike; there is one of each."""

    __slots__ = ("applying", "is_told")

    def __init__(self, applying: frozenset[Unit], *, is_told: bool) -> None:
        self.applying = applying
        """The units that look at something the request asks for."""
        self.is_told = is_told
        """Whether all units tell what they read; else it is not known what else belongs to it."""


class Classes:
    """Knows the class of a request, for the units that read requests."""

    def __init__(self, readers: Iterable[Unit]) -> None:
        self._readers = tuple(readers)
        self._by_content: dict[bytes, RequestClass] = {}
        self._by_reads: dict[Hashable, RequestClass] = {}
        self._last: tuple[RequestSpec, RequestClass] | None = None
        """A pair that is replaced whole, whatever thread does."""

    def of(self, spec: RequestSpec) -> RequestClass:
        """The class of the request, whichever its instance is. Raises as the units do."""
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

    def _asked(self, spec: RequestSpec) -> RequestClass:
        applying = frozenset(unit for unit in self._readers if unit.applies(spec))
        reads = tuple(unit.reads(spec) if unit in applying else False for unit in self._readers)
        if None in reads:
            return RequestClass(applying, is_told=False)
        if len(self._by_reads) >= _MOST_KNOWN:
            self._by_reads.clear()
        return self._by_reads.setdefault(reads, RequestClass(applying, is_told=True))


def _content(spec: RequestSpec) -> bytes | None:
    """All of a request but its instance; None where that is too long, or cannot be written down."""
    try:
        content = _encode(msgspec.structs.replace(spec, instance_uuid=None))
    except (TypeError, ValueError, OverflowError):
        return None
    return content if len(content) <= _LONGEST_KNOWN else None
