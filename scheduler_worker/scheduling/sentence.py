"""One sentence that says why a request got its host, or got none: made to be quoted.

It is made of values alone: how many hosts each filter left, what the nearest host lacks, what the
weighers gave.
"""

from collections.abc import Iterable, Mapping, Sequence
from operator import itemgetter

from scheduler_worker.model.decisions import FilterStep, NearMiss

_MOST_WEIGHERS = 3
_SINGULAR = {"have": "has", "are": "is", "do": "does"}
UNITS = {
    "VCPU": "vCPUs",
    "PCPU": "dedicated CPUs",
    "MEMORY_MB": "MiB of memory",
    "DISK_GB": "GiB of disk",
}
"""Resource class -> what its amounts are called."""


def refusal(
    hosts: int,
    steps: Sequence[FilterStep],
    demands: Mapping[str, str],
    nearest: NearMiss | None = None,
) -> str:
    """Why no host was chosen of so many.

    ``demands`` says what a filter demands of hosts, by its name, as :meth:`.Filter.demand` does.
    """
    if not hosts:
        return "No host: there are none."
    clauses: list[str] = []
    for step in steps:
        if step.hosts_out < step.hosts_in:
            among = f"of {_hosts(hosts)}" if not clauses else "of those"
            demand = demands.get(step.name, f"pass {step.name}")
            clauses.append(f"{among} {_counted(step.hosts_out, demand)}")
    near = f"; nearest is host {nearest.host}, {_missing(nearest)}" if nearest else ""
    return f"No host: {', '.join(clauses) or 'none passes'}{near}."


def placement(
    host: str,
    hosts: int,
    passing: int,
    shares: Iterable[tuple[str, float, float]] = (),
    *,
    best: str | None = None,
) -> str:
    """Why a host was chosen of the hosts that pass.

    ``shares`` is of each weigher its name, what it gives the host, and what it gives the next one:
    it names the weighers that put it before that. ``best`` is the host of the highest weight, if it
    is another.
    """
    if passing == 1:
        return f"Host {host}: the only one of {_hosts(hosts)} that passes."
    if best is not None:
        drawn = f"drawn from the best of {_hosts(passing)} that pass"
        return f"Host {host}: {drawn}; {best} has the highest weight."
    leads = [(share - after, name, share) for name, share, after in shares if share > after]
    leads.sort(key=itemgetter(0), reverse=True)
    parts = [f"{name} ({share:.2f})" for _, name, share in leads[:_MOST_WEIGHERS]]
    if not parts:
        return f"Host {host}: first of {_hosts(passing)} that pass, as good as the next."
    return f"Host {host}: first of {_hosts(passing)} that pass, by {_listed(parts)}."


def of_clusters(cluster: str | None, count: int, hosts: int, sentence: str) -> str:
    """Why several clusters with so many hosts refused, from the sentence of the nearest."""
    nearest = f"; nearest is cluster {cluster}{sentence.removeprefix('No host')}" if hosts else "."
    return f"No host of {hosts:,} in {count} clusters{nearest}"


def of_instances(count: int, sentence: str) -> str:
    """The sentence of a refusal of several instances, from that of the last one looked at."""
    return sentence if count == 1 else f"No hosts for {count} instances{sentence[len('No host') :]}"


def of_reason(reason: str) -> str:
    """The sentence for a refusal that no filter decided."""
    return f"No host: {reason[:1].lower()}{reason[1:].strip().rstrip('.')}."


def _hosts(count: int) -> str:
    return f"{count:,} host" if count == 1 else f"{count:,} hosts"


def _counted(count: int, demand: str) -> str:
    """``412 have ...``, ``1 has ...``, ``none has ...``."""
    if count > 1:
        return f"{count:,} {demand}"
    verb, space, rest = demand.partition(" ")
    singular = _SINGULAR.get(verb) or (f"{verb}es" if verb.endswith("s") else f"{verb}s")
    return f"{count or 'none'} {singular}{space}{rest}"


def _missing(near: NearMiss) -> str:
    short = [f"{amount:,} {UNITS.get(name, name)}" for name, amount in near.shortages.items()]
    clauses = [f"short of {_listed(short)}"] if short else []
    clauses += [f"which {reason}" if _is_verb(reason) else reason for reason in near.reasons]
    return ", and ".join(clauses) or "which does not pass"


def _is_verb(reason: str) -> bool:
    """Whether the clause says what the host does, as most reasons do: ``lacks trait X``."""
    verb = reason.partition(" ")[0]
    return verb in {"is", "has"} or (verb.endswith("s") and verb != "its")


def _listed(parts: Sequence[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"
