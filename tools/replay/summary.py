"""The summary of a replay, as lines of text and as plain values for JSON."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from replay.books import Books, shares, totals
from replay.chart import histogram, strip
from replay.driver import Outcome
from replay.streams import Plain

PERCENTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "max": 1.0}
EXAMPLES = 4


def latencies_ms(latencies_s: Sequence[float]) -> dict[str, float]:
    """Percentiles (nearest rank), in milliseconds; empty when nothing was decided."""
    ordered = sorted(latencies_s)
    last = len(ordered) - 1
    if not ordered:
        return {}
    return {
        name: round(1000 * ordered[round(last * part)], 3) for name, part in PERCENTILES.items()
    }


def decisions_per_s(outcome: Outcome) -> float:
    """Answers of either kind, errors not counted."""
    decided = outcome.placed + outcome.refused
    return round(decided / outcome.elapsed_s, 1) if outcome.elapsed_s else 0.0


def as_plain(outcome: Outcome, books: Books, live: int, problems: Sequence[str]) -> dict[str, Any]:
    """The summary as JSON-able values."""
    return {
        "requests": outcome.length,
        "placed": outcome.placed,
        "refused": outcome.refused,
        "failed": dict(outcome.failed),
        "first_failure": outcome.first_failure,
        "elapsed_s": round(outcome.elapsed_s, 3),
        "decisions_per_s": decisions_per_s(outcome),
        "latency_ms": latencies_ms(outcome.latencies_s),
        "live_instances": len(books),
        "live_promises": live,
        "fill": shares(*totals(books)),
        "over_promised": list(problems),
        "refused_spec": outcome.refused_spec,
        "explanation": outcome.explanation,
    }


def as_lines(outcome: Outcome, books: Books, live: int, problems: Sequence[str]) -> list[str]:
    """The summary as lines of text."""
    decided = outcome.placed + outcome.refused
    latency = "  ".join(f"{k} {v:.1f}" for k, v in latencies_ms(outcome.latencies_s).items())
    lines = [f"placed {outcome.placed:,} of {outcome.length:,} (refused {outcome.refused:,})"]
    if outcome.failed:
        kinds = ", ".join(f"{kind} {count:,}" for kind, count in outcome.failed.most_common())
        lines.append(f"failed {outcome.failed.total():,} ({kinds}): {outcome.first_failure}")
    lines += [
        f"{decisions_per_s(outcome):,.0f} decisions/s ({decided:,} in {outcome.elapsed_s:.1f} s)",
        f"latency ms: {latency}",
        f"live instances {len(books):,}, reservations left at the worker {live:,}",
        "",
        *_fill(books),
    ]
    if outcome.refused_spec and outcome.explanation:
        lines += ["", *explained(outcome.refused_spec, outcome.explanation)]
    return [*lines, "", *verdict(problems)]


def _fill(books: Books) -> list[str]:
    each = [shares(book.use, book.limit) for book in books]
    columns = {
        name: [share[key] for share in each if key in share]
        for name, key in (("vCPU", "vcpus"), ("memory", "memory_mb"), ("disk", "disk_gb"))
    }
    strips = [f"{name:>7}  {strip(column)}" for name, column in columns.items() if column]
    columns.pop("disk")
    return [f"{len(each):,} hosts, in the order of the fleet:", *strips, *histogram(columns)]


def explained(spec: Plain, explanation: Plain) -> list[str]:
    """Explain one refused request: the hosts after each filter, and some reasons."""
    lines = [f"refused, for example: {_described(spec)}"]
    lines += [
        f"  {step['name']:<32} {step['hosts_in']:>6,} -> {step['hosts_out']:,}"
        for step in explanation["filters"]
        if step["hosts_in"] != step["hosts_out"]
    ]
    rejected = [each for each in explanation["verdicts"] if each.get("rejected_by")]
    kinds = Counter(each["rejected_by"] for each in rejected)
    shown = [
        next(each for each in rejected if each["rejected_by"] == kind)
        for kind, _ in kinds.most_common(EXAMPLES)
    ]
    return lines + [f"  {each['host']}: {each['rejected_by']}: {each['reason']}" for each in shown]


def _described(spec: Plain) -> str:
    flavor = spec["flavor"]
    parts = [f"{flavor['name']} ({flavor['vcpus']} vCPU, {flavor['memory_mb']:,} MiB)"]
    parts += [f"{key} {value}" for key, value in flavor.get("extra_specs", {}).items()]
    properties = (spec.get("image") or {}).get("properties", {})
    parts += [f"{key}={value}" for key, value in properties.items() if key.startswith("hw_arch")]
    if spec.get("availability_zone"):
        parts.append(f"in {spec['availability_zone']}")
    if spec.get("instance_group"):
        parts.append(f"of a group with {spec['instance_group']['policy']}")
    return ", ".join(parts)


def verdict(problems: Sequence[str]) -> list[str]:
    """The last lines: whether hosts are overbooked, and how."""
    if not problems:
        return ["checked: no host is overbooked"]
    more = [f"  ... and {len(problems) - 10} more"] if len(problems) > 10 else []
    return [
        f"OVERBOOKED: {len(problems)} excesses",
        *(f"  {problem}" for problem in problems[:10]),
        *more,
    ]
