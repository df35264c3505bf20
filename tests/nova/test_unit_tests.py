"""Nova's own unit tests of its scheduler, in which ours answers (tools/nova_tests)."""

import pytest
from nova_tests.suite import judge, run
from nova_tests.witnesses import contradiction

from scheduler_worker.scheduling.prefilters.units import Inventories, RequestFilters
from tests.support.hosts import request_spec

ENOUGH = 425
"""So many tests ask ours; a harness that asks less has lost something."""


@pytest.fixture(scope="module")
def verdict(nova_installation):
    return run(nova_installation)


def test_ours_answer_as_novas_do(verdict):
    assert verdict.differ == {}
    assert len(verdict.agree) >= ENOUGH


def test_the_table_says_nothing_of_tests_that_agree(verdict):
    assert verdict.stale == []


@pytest.mark.parametrize(
    ("result", "kind"),
    [
        ({"outcome": "passed", "asked": 1, "inexpressible": []}, "agree"),
        ({"outcome": "failed", "asked": 1, "inexpressible": []}, "differ"),
        ({"outcome": "passed", "asked": 0, "inexpressible": []}, "differ"),
        ({"outcome": "passed", "asked": 1, "inexpressible": ["a mock"]}, "differ"),
    ],
)
def test_only_a_test_that_ours_alone_answered_agrees(result, kind):
    verdict = judge({"filters.test_x": {"why": "", **result}}, {})
    assert "filters.test_x" in getattr(verdict, kind)


ASKED = "resources=MEMORY_MB:512,VCPU:2&required=CUSTOM_A&root_required=!COMPUTE_STATUS_DISABLED"
PLACED = "&member_of=in:a,b&member_of=!in:c"


@pytest.mark.parametrize(
    ("query", "filters", "otherwise"),
    [
        (ASKED, [RequestFilters(), Inventories()], None),
        (ASKED, [RequestFilters()], "the filters pass a host that has too little MEMORY_MB"),
        (ASKED, [Inventories()], "the filters pass a host that lacks CUSTOM_A"),
        (f"{ASKED},CUSTOM_B", [RequestFilters()], "the filters pass a host that lacks CUSTOM_B"),
        (ASKED.replace("=CUSTOM_A", "="), [RequestFilters()], "the filters reject a host"),
        (f"{ASKED}{PLACED}", [RequestFilters(), Inventories()], "is in none of ['a', 'b']"),
        (f"{ASKED}&member_of=!in:c", [RequestFilters(), Inventories()], "is in c"),
        (f"{ASKED}&member_of=in:c&member_of=!in:c", [], None),
    ],
)
def test_filters_that_decide_otherwise_are_found(query, filters, otherwise):
    spec = request_spec(vcpus=2, memory_mb=512, extra_specs={"trait:CUSTOM_A": "required"})
    found = contradiction(query, spec, filters, [])
    assert found is None if otherwise is None else otherwise in (found or "")
