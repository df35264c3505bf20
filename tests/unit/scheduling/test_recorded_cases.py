"""Recorded answers of Nova's own code, and oVirt's own cases."""

from collections import Counter
from pathlib import Path

import pytest
from conformance import nova, ovirt, reading, registry

from scheduler_worker.scheduling.plugin import Filter
from tests.support.samples import nova_cases

CASES = Path(__file__).resolve().parents[2] / "cases" / "ovirt"
NOVA = nova_cases()
OVIRT = [each for path in sorted(CASES.glob("*.json")) for each in reading.documents(path)]


@pytest.mark.parametrize("document", NOVA + OVIRT, ids=lambda each: Path(each.place).name)
def test_we_decide_as_they_do(document):
    outcome = registry.run(document)
    assert (outcome.differences, outcome.skipped) == ([], None)


def test_all_cases_are_there():
    counts = Counter(registry.kind_of(each).name for each in NOVA)
    assert counts["filter"] > 500
    assert counts["schedule"] > 250
    assert counts["weigher"] > 70
    assert counts["extra-spec"] > 100
    assert counts["json-query"] > 20
    assert counts["normalize"] > 10
    assert Counter(registry.kind_of(each).name for each in OVIRT) == {
        "ovirt-affinity": 14,
        "ovirt-balance": 10,
        "ovirt-distribution": 7,
        "ovirt-memory": 14,
        "ovirt-pending": 3,
        "ovirt-policies": 2,
        "ovirt-power": 7,
        "ovirt-selector": 5,
        "ovirt-spares": 9,
        "ovirt-unit": 22,
        "ovirt-upgrade": 6,
    }


def test_every_filter_of_the_cases_gives_reasons():
    recorded = {each.value["filter"] for each in NOVA if "filter" in each.value}
    filters = [nova.FILTERS[name] for name in recorded - {"AllHostsFilter"}]
    units = [each.unit for each in ovirt.catalogue() if ".ovirt." in each.unit.__module__]
    of_ovirt = [unit for unit in units if issubclass(unit, Filter)]
    assert len(of_ovirt) == 27
    assert [unit for unit in (*filters, *of_ovirt) if unit.reason is Filter.reason] == []  # type: ignore[attr-defined]
