"""The reference of filters and weighers is what the units say, and they say all of it."""

import pytest
from conformance import nova, reading, registry
from reference import pages
from reference.facts import facts, options

from scheduler_worker.scheduling.options import Options
from scheduler_worker.scheduling.plugin import Filter
from tests.support.nova_cases import documents

UNITS = {**nova.FILTERS, **nova.WEIGHERS}


@pytest.mark.parametrize("path", pages.pages(), ids=lambda path: path.name)
def test_the_page_is_up_to_date(path):
    assert path.read_text() == pages.pages()[path], "run: make reference"


@pytest.mark.parametrize("unit", UNITS.values(), ids=UNITS)
def test_a_unit_tells_what_it_reads_and_gives_an_example(unit):
    said = facts(unit)
    assert said.prose
    assert said.fields.keys() >= {"Reads", "Example"}
    assert options(said) is not None  # all of them exist


class Asked:
    """Options that remember which of them were looked at."""

    def __init__(self, of: Options, names: set[str]) -> None:
        self._of, self._names = of, names

    def __getattr__(self, name: str) -> object:
        self._names.add(name)
        return getattr(self._of, name)


@pytest.fixture(scope="module")
def asked():
    """What each filter looked at while it judged all recorded hosts."""
    names: dict[str, set[str]] = {}
    recorded = [each.value for each in documents() if "filter" in each.value]
    with pytest.MonkeyPatch.context() as patch:
        for case in recorded:
            seen = names.setdefault(case["filter"], set())
            patch.setitem(nova.FILTERS, case["filter"], watched(UNITS[case["filter"]], seen))
            registry.run(reading.Document("recorded", case))
    return names


def watched(unit: type[Filter], seen: set[str]) -> type[Filter]:
    class Watched(unit):
        def __init__(self, told: Options) -> None:
            super().__init__(Asked(told, seen))

    Watched.__name__ = unit.__name__
    return Watched


def test_the_options_that_a_filter_looks_at_are_those_that_it_names(asked):
    assert asked["IoOpsFilter"] == {"max_io_ops_per_host"}
    for name, looked_at in asked.items():
        named = [each.split()[1].rstrip("`") for each in options(facts(UNITS[name]))]
        unnamed = {each for each in looked_at if not any(name in each for name in named)}
        assert not unnamed, name


def test_fields_that_a_unit_does_not_say_are_those_of_its_bases():
    said = facts(nova.FILTERS["AggregateIoOpsFilter"]).fields
    assert said["Reads"] == facts(nova.FILTERS["IoOpsFilter"]).fields["Reads"]
    assert "Metadata" in said
