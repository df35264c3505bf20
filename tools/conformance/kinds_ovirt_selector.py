"""Totals of hosts, from the scores of weights and their factors."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from conformance import ovirt
from scheduler_worker.scheduling.catalogue import UnitKind
from scheduler_worker.scheduling.scales import RankScale, Scale

_ANY = ovirt.weight_unit("PreferredHosts")
"""oVirt's selectors treat all weights alike."""


def recognise(document: Any) -> bool:
    return ovirt.is_case(document, "selector")


def run(document: Any) -> Iterator[str]:
    if "sorted_values" in document:
        yield from _ranks(document)
        return
    entry = ovirt.catalogue().find(document["selector"], UnitKind.SELECTOR)
    if entry is None:
        yield f"there is no selector {document['selector']}"
        return
    selector: Any = entry.unit()
    is_rank = document["selector"] == "RankSelector"
    hosts = document["hosts"]
    if not is_rank:
        recorded = {host for _, host, _ in document["records"]}
        hosts = [host for host in hosts if host in recorded]
    totals = np.zeros(len(hosts))
    for unit in sorted({unit for unit, _, _ in document["records"]}):
        found = _products(selector.scale, _raw(document["records"], unit, hosts))
        totals += document["factors"].get(unit, 1) * found
        yield from _compared(f"ranks by {unit}", hosts, found, document.get("derived_ranks"), unit)
    shown = totals if is_rank else -totals
    yield from _compared("totals", hosts, shown, document, "derived_totals")
    best = hosts[selector.rank(np.arange(len(hosts)), totals, np.random.RandomState(0)).first]
    if best != document["expected_best"]:
        yield f"{best} is best; expected is {document['expected_best']}"


def _raw(records: Any, unit: str, hosts: list[str]) -> Any:
    """Scores as oVirt's units give them: smaller ones are better."""
    raw = np.zeros(len(hosts))
    for name, host, weight in records:
        if name == unit:
            raw[hosts.index(host)] += weight
    return raw


def _products(scale: type[Scale], raw: Any) -> Any:
    return scale(_ANY, ovirt.request(), 1.0, raw).every_product()


def _compared(what: str, hosts: list[str], found: Any, derived: Any, key: str) -> Iterator[str]:
    expected = (derived or {}).get(key)
    values = dict(zip(hosts, found.tolist(), strict=True))
    if expected is not None and values != expected:
        yield f"the {what} are {values}; derived are {expected}"


def _ranks(document: Any) -> Iterator[str]:
    """Places in an ordered list, equal values sharing the first."""
    values = np.array(document["sorted_values"], dtype=float)
    if len(values) and values[0] > values[-1]:
        values = -values
    found = (len(values) - 1 - _products(RankScale, values)).tolist() if len(values) else []
    if found != document["expected_ranks"]:
        yield f"the ranks are {found}; expected are {document['expected_ranks']}"
