"""The grammar, one line for each rule; Nova's answers are in the recorded cases."""

import pytest

from scheduler_worker.scheduling.extra_specs import match


@pytest.mark.parametrize(
    ("value", "requirement", "matches"),
    [
        # '=' is "at least", '==' is "equal", and a literal has neither blanks nor operators
        ("4", "= 3", True),
        ("2", "= 3", False),
        ("3.0", "== 3", True),
        ("4", "== 3", False),
        ("3", "!= 3", False),
        ("3", "<= 3", True),
        ("4", "<= 3", False),
        ("3", ">= 3", True),
        ("== 3", "==3", False),
        ("==3", "==3", True),
        # text is compared as text
        ("10", "s< 9", True),
        ("abc", "s== abc", True),
        ("abc", "s!= abc", False),
        ("b", "s<= a", False),
        ("b", "s> a", True),
        ("b", "s>= b", True),
        (["b"], "s== ['b']", False),
        (["b"], "s!= b", True),
        # parts, all parts, alternatives
        ("aes avx2", "<in> avx", True),
        (["aes", "avx2"], "<in> avx", False),
        ("aes avx2", "<all-in> aes avx2", True),
        ("aes avx2", "<all-in> aes mmx", False),
        ("b", "<or> a <or> b", True),
        ("c", "<or> a <or> b", False),
        ("<or>", "<or> a <or> b", False),
        # literals
        ("kvm", "kvm", True),
        ("kvm", " kvm", False),
        ("KVM", "kvm", False),
        ("4", "< 5", False),
        ("< 5", "< 5", True),
        ("", "", True),
        # words after the second are ignored
        ("4", ">= 3 9", True),
        # an operator does not match a missing value
        (None, ">= 3", False),
        (None, "s== None", False),
        (None, "<or> None", False),
        (None, "<in> a", False),
        ("4", ">=", False),
        ("a", "<in>", False),
        ("a", "<all-in>", False),
    ],
)
def test_a_value_meets_a_requirement(value, requirement, matches):
    assert match(value, requirement) is matches


@pytest.mark.parametrize(
    ("value", "requirement"),
    [("four", ">= 3"), ("4", "== three"), ("4", "<or>"), (["b"], "s< c"), (["4"], ">= 3")],
)
def test_an_invalid_requirement_is_an_error(value, requirement):
    with pytest.raises(ValueError, match=r"could not convert|alternatives|list"):
        match(value, requirement)
