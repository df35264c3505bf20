"""Records of decisions: their ids, and their stored form."""

import pytest

from scheduler_worker.model.decision_history import (
    ComputeNode,
    DecisionDetails,
    DecisionId,
    Position,
    Waits,
    to_keep,
)
from scheduler_worker.model.decisions import Ranked, RankedHost
from tests.support.hosts import request_spec


def test_an_id_is_read_back():
    id = DecisionId(Position(1_700_000_000_000, 3), "rack@1/a")
    assert str(id) == "1700000000000-3@rack@1/a"
    assert DecisionId.parse(str(id)) == id


@pytest.mark.parametrize("text", ["", "1-2", "1-2@", "@a", "1@a", "-1@a", "1--2@a", "9" * 50])
def test_another_text_is_no_id(text):
    with pytest.raises(ValueError, match="is no id of a decision, such as"):
        DecisionId.parse(text)


def test_the_later_decision_has_the_larger_id():
    ids = [DecisionId.parse(f"{each}@a") for each in ("10-10", "10-9", "9-0", "10-0")]
    assert [str(each.position) for each in sorted(ids)] == ["9-0", "10-0", "10-9", "10-10"]


def test_details_are_read_back():
    details = DecisionDetails(
        spec=request_spec(
            flavor={"vcpus": 1, "memory_mb": 2, "extra_specs": {"a": "b"}},
            instance_group={"policy": "affinity", "_rules": {"max_server_per_host": "2"}},
            scheduler_hints={"query": ["x"]},
        ),
        candidates=10,
        rejections=(("RamFilter", 4), ("CoreFilter", 0)),
        ranked=Ranked(("RAMWeigher",), ("h",), ("n",), (1.5,), ((1.5,),)),
        selections=((ComputeNode("h", "n"), ComputeNode("i", "n")),),
        waits=Waits(lock_s=0.25),
    )
    found = DecisionDetails.decoded(details.encoded())
    assert found == details
    assert [(each.name, each.hosts_in, each.hosts_out) for each in found.filters] == [
        ("RamFilter", 10, 6),
        ("CoreFilter", 6, 6),
    ]


def test_a_share_that_is_no_finite_number_is_stored_as_unknown():
    ranked = Ranked(("W",), ("h",), ("n",), (float("inf"),), ((float("nan"),),))
    found = DecisionDetails.decoded(DecisionDetails(spec=request_spec(), ranked=ranked).encoded())
    assert found.ranked.hosts == (RankedHost("h", "n", None, {"W": None}),)


def test_a_weigher_without_shares_gives_every_host_nothing():
    ranked = Ranked(("A", "B"), ("h", "i"), ("n", "o"), (2.0, 1.0), ((), (2.0, 1.0)))
    found = DecisionDetails.decoded(DecisionDetails(spec=request_spec(), ranked=ranked).encoded())
    best, second = found.ranked.hosts
    assert best == RankedHost("h", "n", 2.0, {"A": 0.0, "B": 2.0})
    assert second == RankedHost("i", "o", 1.0, {"A": 0.0, "B": 1.0})
    assert Ranked((), ("h",), ("n",), (0.0,)).hosts == (RankedHost("h", "n", 0.0),)


def test_passwords_of_a_cell_are_not_kept():
    cell = {"uuid": "c", "transport_url": "rabbit://user:secret@broker/"}
    spec = request_spec(requested_destination={"host": "h", "cell": cell}, closing_hosts=["x"])
    kept = DecisionDetails.decoded(DecisionDetails(spec=to_keep(spec)).encoded()).spec
    assert kept.requested_destination.cell == {"uuid": "c"}
    assert kept.requested_destination.host == "h"
    assert kept.closing_hosts == ()
