"""Records of decisions: their ids, and their stored form."""

import pytest

from scheduler_worker.model.decision_history import (
    DecisionDetails,
    DecisionId,
    Position,
    to_keep,
)
from scheduler_worker.model.decisions import Ranked, RankedHost
from scheduler_worker.model.requests import CellMapping
from tests.support.hosts import request_spec


def test_an_id_is_read_back():
    id = DecisionId(Position(1_700_000_000_000, 3), "rack@1/a")
    assert str(id) == "1700000000000-3@rack@1/a"
    assert DecisionId.parse(str(id)) == id


@pytest.mark.parametrize("text", ["", "1-2", "1-2@", "@a", "1@a", "-1@a", "1--2@a", "9" * 50])
def test_another_text_is_no_id(text):
    with pytest.raises(ValueError, match="is no id of a decision, such as"):
        DecisionId.parse(text)


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
    assert kept.requested_destination.cell == CellMapping(uuid="c")
    assert kept.requested_destination.host == "h"
    assert kept.closing_hosts == ()
