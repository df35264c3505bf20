"""oVirt's own cases: units, formulas, selectors and locked policies."""

from collections import Counter
from pathlib import Path

import pytest
from conformance import ovirt, reading, registry

from scheduler_worker.scheduling.plugin import Filter

CASES = Path(__file__).resolve().parents[2] / "cases" / "ovirt"
DOCUMENTS = [each for path in sorted(CASES.glob("*.json")) for each in reading.documents(path)]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda each: Path(each.place).name)
def test_we_decide_as_ovirt_does(document):
    outcome = registry.run(document)
    assert not outcome.differences
    assert outcome.skipped is None


def test_all_cases_are_there():
    counts = Counter(registry.kind_of(each).name for each in DOCUMENTS)
    assert counts == {
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


def test_every_filter_of_ovirts_gives_reasons():
    entries = [each for each in ovirt.catalogue() if ".ovirt." in each.unit.__module__]
    filters = [each.unit for each in entries if issubclass(each.unit, Filter)]
    assert len(filters) == 27
    assert [unit.__name__ for unit in filters if unit.reason is Filter.reason] == []
