"""The reference of filters and weighers is generated from the units, which have all fields."""

import pytest
from conformance import nova, ovirt
from reference import pages
from reference.alerts import rules
from reference.board import board
from reference.facts import facts, options
from reference.operations import with_tables

GENERATED = pages.pages() | with_tables() | rules() | board()
UNITS = {**nova.FILTERS, **nova.WEIGHERS}
POLICY_UNITS = {
    each.name: each.unit for each in ovirt.catalogue() if ".ovirt." in each.unit.__module__
}


@pytest.mark.parametrize("path", GENERATED, ids=lambda path: path.name)
def test_the_page_is_up_to_date(path):
    assert path.read_text() == GENERATED[path], "run: make reference"


@pytest.mark.parametrize(
    "unit", [*UNITS.values(), *POLICY_UNITS.values()], ids=[*UNITS, *POLICY_UNITS]
)
def test_a_unit_documents_what_it_reads_and_an_example(unit):
    documented = facts(unit)
    assert documented.prose
    assert documented.fields.keys() >= {"Reads", "Example"}


@pytest.mark.parametrize("unit", UNITS.values(), ids=UNITS)
def test_the_options_that_a_unit_names_exist_and_are_the_parameters_that_it_declares(unit):
    named = {each.split()[1].rstrip("`") for each in options(facts(unit))}
    for parameter in unit.parameters_type.__struct_fields__:
        assert any(parameter.removesuffix("_s").endswith(name) for name in named), parameter


def test_a_unit_inherits_the_fields_of_its_bases():
    fields = facts(nova.FILTERS["AggregateIoOpsFilter"]).fields
    assert fields["Reads"] == facts(nova.FILTERS["IoOpsFilter"]).fields["Reads"]
    assert "Metadata" in fields
