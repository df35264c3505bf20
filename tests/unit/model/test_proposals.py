"""Proposals are found one by one, as they are looked at."""

import itertools

import pytest

from scheduler_worker.model.cluster_load import Migration, Proposals


def migration(number: int) -> Migration:
    return Migration(vm=f"v{number}", source="a", destinations=("b",), reason="")


class Found:
    """Migrations, and how many of them were asked for."""

    def __init__(self, most=None):
        self.count = 0
        self._most = most

    def __iter__(self):
        for number in itertools.count():
            if number == self._most:
                return
            self.count += 1
            yield migration(number)


@pytest.mark.parametrize(
    ("read", "count"),
    [
        (bool, 1),
        (lambda found: found[0], 1),
        (lambda found: found[:3], 3),
        (lambda found: list(itertools.islice(found, 2)), 2),
    ],
)
def test_no_more_are_found_than_are_read(read, count):
    found = Found()
    proposals = Proposals(found)
    assert read(proposals) == read(list(map(migration, range(5))))
    assert read(proposals) is not None
    assert found.count == count


def test_all_are_found_for_the_length_and_from_the_end():
    expected = [migration(0), migration(1), migration(2)]
    for read in (len, lambda found: found[-1], lambda found: found[:], list, lambda each: each[:9]):
        assert read(Proposals(expected)) == read(expected)
    assert Proposals(expected) == tuple(expected)
    assert Proposals(expected) != expected[:2]
    assert not Proposals([])
