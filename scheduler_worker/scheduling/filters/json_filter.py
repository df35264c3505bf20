"""The filter for queries about host attributes, written in JSON."""

from __future__ import annotations

from collections.abc import Hashable
from functools import lru_cache

import numpy as np

from scheduler_worker.errors import RequestError
from scheduler_worker.model.hosts import Hosts, HostState, Mask
from scheduler_worker.model.requests import RequestSpec
from scheduler_worker.scheduling import json_query
from scheduler_worker.scheduling.plugin import Filter
from scheduler_worker.wording import cut

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
        answers = (query is None or query.matches(host) for host in hosts.states())
        return np.fromiter(answers, bool, len(hosts))

    def host_passes(self, host_state: HostState, spec_obj: RequestSpec) -> bool:
        query = _query(_text(spec_obj))
        return query is None or query.matches(host_state)

    def reason(self, host_state: HostState, spec: RequestSpec) -> str:
        return f"does not match {cut(_text(spec), 200)}"


def _text(spec: RequestSpec) -> str:
    text = spec.hint(HINT) or ""
    if isinstance(text, list):
        raise RequestError(f"spec_obj.scheduler_hints.{HINT}", f"is given {len(text)} times")
    return text


@lru_cache(maxsize=64)
def _query(text: str) -> json_query.JsonQuery | None:
    try:
        return json_query.read(text)
    except ValueError as error:
        raise RequestError(f"spec_obj.scheduler_hints.{HINT}", str(error)) from None
