"""Recorded answers of Nova's own code: units, grammars and whole requests."""

from collections import Counter
from pathlib import Path

import pytest
from conformance import nova

from scheduler_worker.scheduling.plugin import Filter
from tests.support.nova_cases import differences, documents, registry  # first: it finds the tools

DOCUMENTS = documents()


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda each: Path(each.place).name)
def test_we_decide_as_nova_did(document):
    assert not differences(document)


def test_all_cases_are_there():
    counts = Counter(registry.kind_of(each).name for each in DOCUMENTS)
    assert counts["filter"] > 500
    assert counts["schedule"] > 250
    assert counts["weigher"] > 70
    assert counts["extra-spec"] > 100
    assert counts["json-query"] > 20
    assert counts["normalize"] > 10


def test_every_filter_of_the_cases_gives_reasons():
    recorded = {each.value["filter"] for each in DOCUMENTS if "filter" in each.value}
    filters = [nova.FILTERS[name] for name in recorded - {"AllHostsFilter"}]
    assert [unit.__name__ for unit in filters if unit.reason is Filter.reason] == []  # type: ignore[attr-defined]
