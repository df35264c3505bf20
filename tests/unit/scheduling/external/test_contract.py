"""What classes in sandboxes may declare and answer."""

import pytest

from scheduler_worker.scheduling.catalogue import UnitKind
from scheduler_worker.scheduling.external.contract import (
    plugin_classes,
    read_balance,
    read_filter,
    read_scores,
)

HOSTS = ["a", "b"]


def declared(**fields):
    return [{"name": "MaxVms", "kinds": {"filter": "Limits  the\n VMs."}, **fields}]


def test_a_class_is_a_unit_of_each_kind():
    kinds = {"filter": "one", "weight": "two", "balance": "three"}
    found = plugin_classes("max.py", declared(kinds=kinds, validation="most=[0-9]+;mode=a|b"))
    assert [each.kind for each in found] == [UnitKind.FILTER, UnitKind.WEIGHT, UnitKind.BALANCE]
    assert {each.file for each in found} == {"max.py"}
    assert found[0].parameters == {"most": "[0-9]+", "mode": "a|b"}


def test_a_description_is_one_line():
    assert plugin_classes("max.py", declared())[0].description == "Limits the VMs."


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"validation": "most=["}, "regular expression"),
        ({"validation": "a b=1"}, "letters, digits"),
        ({"validation": "x" * 30_000}, "length"),
        ({"validation": ";".join(f"p{n}=1" for n in range(60))}, "more than 50"),
        ({"name": "a b"}, "matching regex"),
        ({"kinds": {"selector": ""}}, "Invalid enum value"),
        ({"kinds": ["filter"]}, "Expected"),
        ({"on_failure": "fail"}, "on_failure is 'fail', not pass or refuse"),
    ],
)
def test_an_invalid_declaration_is_refused(fields, problem):
    with pytest.raises(ValueError, match=problem):
        plugin_classes("max.py", declared(**fields))


@pytest.mark.parametrize("value", [None, 3, {}, "x", [1]])
def test_what_is_no_declaration_is_refused(value):
    with pytest.raises(ValueError, match="Expected"):
        plugin_classes("max.py", value)


def test_a_balance_may_have_nothing_to_say():
    assert read_balance(["vm", ["a", "b"]], HOSTS) == ("vm", ("a", "b"))
    for nothing in (None, [], ["", []], ["vm", []], ["", ["a"]]):
        assert read_balance(nothing, HOSTS) is None


@pytest.mark.parametrize(
    ("read", "answer"),
    [
        (read_filter, ["c"]),
        (read_filter, [1]),
        (read_scores, [["c", 1]]),
        (read_scores, [["a", "1"]]),
        (read_scores, [["a"]]),
        (read_scores, [["a", float("nan")]]),
        (read_balance, ["vm", ["c"]]),
        (read_balance, ["vm", "a"]),
        (read_balance, [1, ["a"]]),
    ],
)
def test_nonsense_is_refused(read, answer):
    with pytest.raises(ValueError):
        read(answer, HOSTS)
