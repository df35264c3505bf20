"""The pages, as text."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from reference.facts import Facts, cost, default_multiplier, facts, metadata, options
from scheduler_worker.factories import FILTERS, POLICY_UNITS, WEIGHERS, registered
from scheduler_worker.scheduling.catalogue import CatalogueEntry, entry
from scheduler_worker.scheduling.options import DEFAULT_FILTERS
from scheduler_worker.scheduling.ovirt.mandatory import MANDATORY

DOCS = Path(__file__).resolve().parents[2] / "docs"

_COST = """\
**Cost**: how many hosts the unit evaluates, and when again. Results are cached for each equivalence
class: requests of which all units read the same. A unit that does not apply to a request costs
nothing.

| cost | evaluates | again |
|---|---|---|
| facts | all hosts at once, in columns | a host with a new report |
| use | all hosts at once, in columns | also a host whose reservations change |
| rows | the remaining hosts, one by one | also a host whose reservations change |
| request | all hosts at once, in columns | for each request that it applies to, with all other
units |
"""
_FILTERS = f"""\
# Filters

Generated from the filters' code by `make reference`; do not edit. A filter decides which hosts can
take an instance. Those that `[filter_scheduler] enabled_filters` names are evaluated in that order,
each on the hosts that the one before it passed. Your own: `docs/writing-a-filter.md`.

**Once**: evaluated for the first instance of a request only, as placing it cannot change the
result.
**Rebuild**: evaluated for a rebuild with a new image, too; the others pass every host then.
Requests with `force_hosts` or `force_nodes` skip all filters, unless they are such a rebuild.

{_COST}"""
_WEIGHERS = f"""\
# Weighers

Made from the weighers themselves by `make reference`; do not edit. A weigher gives each host that
passed the filters a raw value, higher is better. Raw values are spread over 0 to 1 between the
smallest and the largest of these hosts, multiplied, and added up over all weighers; the host with
the largest sum is taken. Where all hosts are equal each gets 0. A lone host is not weighed.

**The multiplier** is an option. Aggregate metadata under the same key overrides it for the hosts
of the aggregate; of several the smallest counts, and if one is no number the option does. A
negative multiplier reverses the preference, 0 turns the weigher off.

**From 0**: raw values below 0 count as 0, and the spread begins at 0 and not at the smallest. So
where all hosts are equal each gets 1, unless all are 0.

{_COST}"""


_POLICY_UNITS = f"""\
# oVirt's policy units

Generated from the units' code by `make reference`; do not edit. Cluster policies name these units
(`docs/cluster-policies.md`), under oVirt's names and ids, beside the filters and weighers of
`docs/filters.md` and `docs/weighers.md`. They read what hosts report under `virt` and requests say
under `vm` (`docs/rpc.md`); what is missing there is taken from Nova's fields where these say the
same.

Filters and weights are entries apart, and some share a name. Of a weight the lower score is better.
Parameters are texts that match the expression as a whole. Mandatory filters are asked first under
every policy and named by none; they concern requests that ask for something of theirs.

{_COST}"""

_BALANCES = """\
A balance looks at the load of a cluster's hosts and proposes migrations of running VMs, the best
one first, each with the hosts that may take the VM; `docs/balancing.md` has what they have in
common.
"""


def pages() -> dict[Path, str]:
    """The files, with their contents."""
    filters = [facts(unit) for _, unit in sorted(registered(FILTERS).items())]
    weighers = [facts(unit) for _, unit in sorted(registered(WEIGHERS).items())]
    return {
        DOCS / "filters.md": "\n".join([_FILTERS, *_filter_table(filters), *_sections(filters)]),
        DOCS / "weighers.md": "\n".join(
            [_WEIGHERS, *_weigher_table(weighers), *_sections(weighers)]
        ),
        DOCS / "policy-units.md": "\n".join([_POLICY_UNITS, *_policy_units()]),
    }


def _policy_units() -> Iterator[str]:
    filters, weights, balances = (
        [entry(name, unit) for name, unit in sorted(registered(group).items())]
        for group in POLICY_UNITS
    )
    mandatory = [entry(name, unit, is_mandatory=True) for name, unit in sorted(MANDATORY.items())]
    for title, some in (
        ("Filters", filters),
        ("Mandatory filters", mandatory),
        ("Weights", weights),
    ):
        yield f"\n## {title}\n\n| unit | id | cost |\n|---|---|---|"
        for each in some:
            yield f"{_row(each)} {cost(each.unit)} |"
        for each in some:
            yield from _policy_unit(each)
    yield f"\n## Balances\n\n{_BALANCES}\n| unit | id |\n|---|---|"
    yield from map(_row, balances)
    for balance in balances:
        yield from _policy_unit(balance)
    yield ""


def _row(each: CatalogueEntry) -> str:
    """The first columns of a unit's row."""
    [kind] = each.kinds
    anchor = f"{each.name} {kind}".lower().replace(" ", "-")
    return f"| [{each.name}](#{anchor}) | `{each.id_as(kind)}` |"


def _policy_unit(each: CatalogueEntry) -> Iterator[str]:
    found = facts(each.unit)
    [kind] = each.kinds
    yield f"\n### {each.name}, {kind}\n\n{_markdown(found.prose)}\n"
    for parameter in each.parameters if not each.is_mandatory else ():
        if parameter.regex:
            shown = _value(parameter.default, parameter.regex)
            yield f"* **Parameter `{parameter.name}`**: {shown}"
    for name in ("Reads", "Example"):
        yield f"* **{name}**: {_markdown(found.fields.get(name, ''))}"


def _value(default: object, regex: str) -> str:
    return f"{'unset' if default is None else default} by default; `{regex}`"


def _filter_table(filters: list[Facts]) -> Iterator[str]:
    yield "| filter | by default | once | rebuild | cost |"
    yield "|---|---|---|---|---|"
    for each in filters:
        once, rebuild = (
            getattr(each.unit, mark) for mark in ("run_filter_once_per_request", "RUN_ON_REBUILD")
        )
        marks = (each.name in DEFAULT_FILTERS, once, rebuild)
        columns = " | ".join("yes" if mark else "" for mark in marks)
        yield f"| [{each.name}](#{each.name.lower()}) | {columns} | {cost(each.unit)} |"


def _weigher_table(weighers: list[Facts]) -> Iterator[str]:
    yield "| weigher | default multiplier | from 0 | cost |"
    yield "|---|---|---|---|"
    for weigher in weighers:
        from_0 = "yes" if getattr(weigher.unit, "minval", None) == 0 else ""
        link = f"[{weigher.name}](#{weigher.name.lower()})"
        yield f"| {link} | {default_multiplier(weigher)} | {from_0} | {cost(weigher.unit)} |"


def _sections(units: list[Facts]) -> Iterator[str]:
    for unit in units:
        rows = {
            "Reads": unit.fields.get("Reads", ""),
            "Options": ", ".join(options(unit)),
            "Aggregate metadata": metadata(unit),
            "Example": unit.fields.get("Example", ""),
        }
        yield f"\n## {unit.name}\n\n{_markdown(unit.prose)}\n"
        yield from (f"* **{name}**: {_markdown(text)}" for name, text in rows.items() if text)
    yield ""


def _markdown(text: str) -> str:
    return re.sub(r":\w+:`~?([^`]+)`", r"`\1`", text).replace("``", "`")
