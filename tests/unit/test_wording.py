"""Texts and lists in messages are bounded, and marked where they are cut."""

import pytest

from scheduler_worker.scheduling.filters.affinity import (
    DifferentHostFilter,
    SameHostFilter,
    ServerGroupAffinityFilter,
)
from scheduler_worker.scheduling.filters.numa_topology import PciPassthroughFilter
from scheduler_worker.wording import cut, lines, listed, one_line
from tests.support.hosts import host_record, host_table, request_spec

SEVEN = tuple(f"vm-{number}" for number in range(7))


def test_lists():
    assert listed(["a", "b"], 2) == "a, b"
    assert listed(["a", "b", "c"], 2) == "a, b and 1 more"
    assert listed([], 2) == ""
    assert listed(["a 1", "b 2"], 1, "; ") == "a 1 and 1 more"
    assert listed(["a", "b"], more=3) == "a, b and 3 more"


def test_texts():
    assert cut("abcdef", 6) == "abcdef"
    assert cut("abcdefg", 6) == "abc..."


@pytest.mark.parametrize(
    ("unit", "asked", "end"),
    [
        (SameHostFilter(), {"scheduler_hints": {"same_host": SEVEN}}, "vm-4 and 2 more"),
        (DifferentHostFilter(), {"scheduler_hints": {"different_host": SEVEN}}, "vm-4 and 2 more"),
        (
            ServerGroupAffinityFilter(),
            {"instance_group": {"policy": "affinity", "hosts": SEVEN}},
            "vm-4 and 2 more",
        ),
        (
            PciPassthroughFilter(),
            {
                "pci_requests": {
                    "requests": [
                        {"count": 1, "spec": [{"product_id": f"{n:04x}"} for n in range(40)]}
                    ]
                }
            },
            "...",
        ),
    ],
    ids=lambda each: type(each).__name__,
)
def test_reasons(unit, asked, end):
    hosts = host_table([host_record()], instances={"h": {uuid: {} for uuid in SEVEN}})
    assert unit.reason(hosts.state(0), request_spec(**asked)).endswith(end)


def test_what_steers_a_terminal_or_is_invisible_is_escaped_and_letters_stay():
    assert one_line("Zürich-Ελλάδα-東京") == "Zürich-Ελλάδα-東京"
    assert one_line("a\x1b]0;\x07\nb\t\x9b\u202e\u200b\ufeff\u2028\x7f") == (
        r"a\x1b]0;\x07\nb\t\x9b\u202e\u200b\ufeff\u2028\x7f"
    )
    assert lines("a\x1b\nb\u2067\n") == "a\\x1b\nb\\u2067\n"
