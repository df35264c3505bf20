"""The two pages, as text."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from reference.facts import Facts, cost, default_multiplier, facts, metadata, options
from scheduler_worker.app import registered
from scheduler_worker.scheduling.options import DEFAULT_FILTERS

DOCS = Path(__file__).resolve().parents[2] / "docs"

_COST = """\
**Cost** tells how many hosts are looked at, and when again. What was said of a host is kept for
each class of requests, those of which all units read the same. A unit that does not apply to a
request costs nothing.

| cost | looks at | again |
|---|---|---|
| facts | all hosts at once, in columns | at a host that reports something new |
| use | all hosts at once, in columns | also at a host whose promises change |
| rows | one host after the other, of those that are left | also at a host whose promises change |
| request | all hosts at once, in columns | for each request that it applies to; so do all units |
"""
_FILTERS = f"""\
# Filters

Made from the filters themselves by `make reference`; do not edit. A filter says which hosts can
take an instance. Those that `[filter_scheduler] enabled_filters` names are asked in that order,
each about the hosts that the one before it let through. Own ones: `docs/writing-a-filter.md`.

**Once**: asked for the first instance of a request only, as placing it cannot change the answer.
**Rebuild**: asked for a rebuild with a new image, too; the others pass every host then. Requests
with `force_hosts` or `force_nodes` skip all filters, unless they are such a rebuild.

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


def pages() -> dict[Path, str]:
    """What belongs into which file."""
    filters = [facts(unit) for _, unit in sorted(registered("scheduler_worker.filters").items())]
    weighers = [facts(unit) for _, unit in sorted(registered("scheduler_worker.weighers").items())]
    return {
        DOCS / "filters.md": "\n".join([_FILTERS, *_filter_table(filters), *_sections(filters)]),
        DOCS / "weighers.md": "\n".join(
            [_WEIGHERS, *_weigher_table(weighers), *_sections(weighers)]
        ),
    }


def _filter_table(filters: list[Facts]) -> Iterator[str]:
    yield "| filter | by default | once | rebuild | cost |"
    yield "|---|---|---|---|---|"
    for each in filters:
        once, rebuild = (
            getattr(each.unit, mark) for mark in ("run_filter_once_per_request", "RUN_ON_REBUILD")
        )
        marks = (each.name in DEFAULT_FILTERS, once, rebuild)
        told = " | ".join("yes" if mark else "" for mark in marks)
        yield f"| [{each.name}](#{each.name.lower()}) | {told} | {cost(each.unit)} |"


def _weigher_table(weighers: list[Facts]) -> Iterator[str]:
    yield "| weigher | default multiplier | from 0 | cost |"
    yield "|---|---|---|---|"
    for each in weighers:
        from_0 = "yes" if getattr(each.unit, "minval", None) == 0 else ""
        link = f"[{each.name}](#{each.name.lower()})"
        yield f"| {link} | {default_multiplier(each)} | {from_0} | {cost(each.unit)} |"


def _sections(units: list[Facts]) -> Iterator[str]:
    for each in units:
        rows = {
            "Reads": each.fields.get("Reads", ""),
            "Options": ", ".join(options(each)),
            "Aggregate metadata": metadata(each),
            "Example": each.fields.get("Example", ""),
        }
        yield f"\n## {each.name}\n\n{_markdown(each.prose)}\n"
        yield from (f"* **{name}**: {_markdown(said)}" for name, said in rows.items() if said)
    yield ""


def _markdown(text: str) -> str:
    return re.sub(r":\w+:`~?([^`]+)`", r"`\1`", text).replace("``", "`")
