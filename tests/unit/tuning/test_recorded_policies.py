"""What the language means, case by case, and what MOM did."""

from collections import Counter
from pathlib import Path

import pytest

from tests.support.nova_cases import differences, reading, registry

CASES = Path(__file__).resolve().parents[2] / "cases" / "tuning"
DOCUMENTS = [
    each for name in ("language.json", "mom.json.gz") for each in reading.documents(CASES / name)
]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda each: each.value["name"])
def test_the_case_comes_out_as_recorded(document):
    assert not differences(document)


def test_all_cases_are_there():
    counts = Counter(registry.run(each).kind for each in DOCUMENTS)
    assert counts == {"tuning": 86, "mom": 28}


def test_a_wrong_expectation_is_noticed():
    cases = {each.value["name"]: each.value for each in DOCUMENTS}
    language = cases["page_influence"] | {"expected": {"vm1": {"cpu.max_load": 50.34}}}
    refused = cases["err_cycle"] | {"expected_error": "E_NAME"}
    loads = cases["page_influence"] | {"expected_error": "E_NAME"}
    mom = cases["balloon_shrink"]
    cycle = mom["expected"][0] | {"guests": {"vm": {"balloon_target": 3984587.8}}}
    for wrong in (language, refused, loads, mom | {"expected": [cycle]}):
        assert differences(reading.Document("here", wrong))
