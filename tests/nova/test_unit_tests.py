"""Nova's own unit tests of its scheduler, in which ours answers (tools/nova_tests)."""

import pytest
from nova_tests.suite import judge, run

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
