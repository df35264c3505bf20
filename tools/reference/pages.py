"""The pages, as text."""

import re
from collections.abc import Iterator
from pathlib import Path

from reference.facts import Facts, cost, default_multiplier, facts, metadata, options
from scheduler_worker.compose.packages import FILTERS, POLICY_UNITS, WEIGHERS, registered
from scheduler_worker.scheduling.catalogue import CatalogueEntry, entry
from scheduler_worker.scheduling.compiler import OF_OVIRT
from scheduler_worker.scheduling.options import DEFAULT_FILTERS

DOCS = Path(__file__).resolve().parents[2] / "docs"

_HEAD = """\
# Unit catalogue

For administrators who choose filters and weighers: every unit, what it reads, its options and an
example. Generated from the code by `make reference`; do not edit.

| part | named by |
|---|---|
| [Filters](#filters) | `[filter_scheduler] enabled_filters`, cluster policies |
| [Weighers](#weighers) | `[filter_scheduler] weight_classes`, cluster policies |
| [oVirt filters](#ovirt-filters), [oVirt weights](#ovirt-weights) | cluster policies |
| [Balances](#balances) | cluster policies |
| [Mandatory filters](#mandatory-filters) | nothing: they run first under every policy |

[Cluster policies](cluster-policies.md) shows how a policy names units. To add a unit, see
[Write a unit](writing-a-filter.md).

## Cost

Results are cached for each request class: requests that read the same in all units. If a unit does
not apply to a request, it costs nothing.

| cost | evaluates | again |
|---|---|---|
| facts | all hosts at once, in columns | a host with a new report |
| use | all hosts at once, in columns | also a host whose reservations change |
| rows | the remaining hosts, one by one | also a host whose reservations change |
| request | all hosts at once, in columns | for each request to which it applies, with all units |
"""
_FILTERS = """\

## Filters

A filter decides which hosts can take an instance. The enabled filters run in the order of
`[filter_scheduler] enabled_filters`. Each sees only the hosts that the filters before it passed.

| column | meaning |
|---|---|
| by default | the filter is in the default list |
| once | it runs for the first instance of a request only |
| rebuild | it runs also for a rebuild with a new image; the others pass every host then |

If a request names `force_hosts` or `force_nodes`, all filters are skipped, except for such a
rebuild.
"""
_WEIGHERS = """\

## Weighers

A weigher gives each remaining host a raw value; higher is better. Raw values are rescaled to 0 to 1
between the smallest and the largest, multiplied, and added up over all weighers. The host with the
largest sum wins. If all hosts are equal, each gets 0. If one host is left, it is not weighed.

* **Multiplier**: an option. The aggregate metadata key of the same name overrides it for the hosts
  of the aggregate. Of several values the smallest counts; if one is no number, the option counts.
  A negative multiplier reverses the preference, and 0 switches the weigher off.
* **From 0**: raw values below 0 count as 0, and the scale begins at 0.
"""
_NEXT = """\

## Next

* [Cluster policies](cluster-policies.md): put units into a policy.
* [Write a unit](writing-a-filter.md): add your own.
"""
_OF_OVIRT = {
    "oVirt filters": """\
These units have oVirt's names and ids. They read what hosts report under `virt` and what requests
say under `vm`: [RPC](rpc.md). If a field is missing there, Nova's field of the same meaning counts.
A parameter is a text that matches the expression as a whole.
""",
    "Mandatory filters": """\
They concern requests that ask for something of theirs.
""",
    "oVirt weights": """\
The host with the lower score is better.
""",
    "Balances": """\
A balance proposes migrations of running VMs, the best first, each with the hosts that may take the
VM: [Balancing](balancing.md).
""",
}


def pages() -> dict[Path, str]:
    """The file, with its contents."""
    filters = [facts(unit) for _, unit in sorted(registered(FILTERS).items())]
    weighers = [facts(unit) for _, unit in sorted(registered(WEIGHERS).items())]
    lines = [_HEAD, _FILTERS, *_filter_table(filters), *_sections(filters)]
    lines += [_WEIGHERS, *_weigher_table(weighers), *_sections(weighers), *_policy_units()]
    return {DOCS / "policy-units.md": "\n".join(lines)}


def _policy_units() -> Iterator[str]:
    filters, weights, balances = (
        [entry(name, unit) for name, unit in sorted(registered(group).items())]
        for group in POLICY_UNITS
    )
    mandatory = [entry(name, unit, is_mandatory=True) for name, unit in sorted(OF_OVIRT.items())]
    units = (filters, mandatory, weights)
    for (title, text), some in zip(_OF_OVIRT.items(), (*units, balances), strict=True):
        has_cost = some is not balances
        yield f"\n## {title}\n\n{text}"
        yield "| unit | id | cost |\n|---|---|---|" if has_cost else "| unit | id |\n|---|---|"
        for each in some:
            yield f"{_row(each)} {cost(each.unit)} |" if has_cost else _row(each)
        for each in some:
            yield from _policy_unit(each)
    yield _NEXT


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
        yield f"\n### {unit.name}\n\n{_markdown(unit.prose)}\n"
        yield from (f"* **{name}**: {_markdown(text)}" for name, text in rows.items() if text)
    yield ""


def _markdown(text: str) -> str:
    return re.sub(r":\w+:`~?([^`]+)`", r"`\1`", text).replace("``", "`")
