"""Following a table by times of whole seconds, and what a heartbeat says."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler_worker.model.feed import ChangedRow, ServiceState, Tail

OVERLAP_S = 10.0


class Table:
    """Rows with a version, changed by conductors whose clocks are off; and a tail on it."""

    def __init__(self) -> None:
        self.now_s = 1000.0
        self.rows: dict[str, tuple[float, int]] = {}
        self.seen: dict[str, int] = {}
        self.tail = Tail(self.now_s - OVERLAP_S, OVERLAP_S)

    def change(self, uuid: str, skew_s: float = 0.0) -> None:
        _, version = self.rows.get(uuid, (0.0, 0))
        self.rows[uuid] = float(int(self.now_s + skew_s)), version + 1

    def look(self) -> list[str]:
        """What is read again, of what has changed since the time that the tail asks for."""
        rows = [
            ChangedRow(uuid, "h", at_s)
            for uuid, (at_s, _) in self.rows.items()
            if at_s >= int(self.tail.since_s)
        ]
        found = [row.uuid for row in self.tail.take(rows, self.now_s)]
        self.seen |= {uuid: self.rows[uuid][1] for uuid in found}
        return found


@pytest.fixture
def table() -> Table:
    return Table()


def test_a_row_is_read_until_its_second_is_over_and_then_no_more(table):
    table.change("a")
    assert table.look() == ["a"]
    table.now_s += 1
    assert table.look() == ["a"]
    table.now_s += 2
    assert table.look() == ["a"]  # nobody has looked since its second was over
    for _ in range(20):
        table.now_s += 2
        assert table.look() == []


def test_a_clock_that_is_far_ahead_hides_no_later_change(table):
    table.change("a", skew_s=3600)
    table.look()
    table.now_s += 5
    table.change("b")
    assert "b" in table.look()


def test_at_rest_no_row_is_even_asked_for(table):
    table.change("a")
    for _ in range(10):
        table.look()
        table.now_s += 2
    assert table.tail.since_s > table.rows["a"][0]


STEPS = st.lists(
    st.tuples(st.sampled_from(["a", "b", "c", "look"]), st.floats(0.0, 5.0)), max_size=40
)
SKEW_S = st.integers(-int(OVERLAP_S) + 2, int(OVERLAP_S))


@given(STEPS, st.fixed_dictionaries(dict.fromkeys("abc", SKEW_S)))
def test_every_change_is_seen_in_the_end_whatever_the_order_and_the_clocks(steps, skews_s):
    table = Table()
    for what, after_s in steps:
        table.now_s += after_s
        if what == "look":
            table.look()
        else:
            table.change(what, skews_s[what])
    for _ in range(3):
        table.look()
        table.now_s += 3
    assert table.seen == {uuid: version for uuid, (_, version) in table.rows.items()}


@pytest.mark.parametrize(
    ("seen_s", "is_up"),
    [(1000.0, True), (940.0, True), (939.0, False), (1060.0, True), (1061.0, False), (None, False)],
)
def test_a_service_is_up_while_its_heartbeat_is_neither_old_nor_from_the_future(seen_s, is_up):
    assert ServiceState(seen_s).facts(1000.0, 60.0)["up"] is is_up
