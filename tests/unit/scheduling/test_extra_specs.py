"""What neither the recorded cases nor the properties of the grammar ask for."""

import pytest

from scheduler_worker.scheduling.extra_specs import match


@pytest.mark.parametrize(
    ("value", "requirement", "matches"),
    [
        (["b"], "s== ['b']", False),
        (["b"], "s!= b", True),
        (["aes", "avx2"], "<in> avx", False),
        ("<or>", "<or> a <or> b", False),
        (None, "s== None", False),
        (None, "<or> None", False),
        ("4", ">=", False),
        ("a", "<in>", False),
        ("a", "<all-in>", False),
    ],
)
def test_a_value_meets_a_requirement(value, requirement, matches):
    assert match(value, requirement) is matches


@pytest.mark.parametrize(
    ("value", "requirement"), [("4", "<or>"), (["b"], "s< c"), (["4"], ">= 3")]
)
def test_an_invalid_requirement_is_an_error(value, requirement):
    with pytest.raises(ValueError, match=r"alternatives|list"):
        match(value, requirement)
