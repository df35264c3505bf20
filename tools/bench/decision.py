"""One decision without I/O: filters, weighers, selection, consumption."""

import argparse
import contextlib
import itertools
import random
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from bench import fleet, peer
from bench.table import percentile, show
from scheduler_worker.compose.packages import FILTERS, POLICY_UNITS, WEIGHERS, registered
from scheduler_worker.model.claims import Claim
from scheduler_worker.model.host_table import HostTable
from scheduler_worker.model.policies import ClusterPolicy
from scheduler_worker.model.requests import RequestSpec
from scheduler_worker.scheduling.compiler import compile_policy
from scheduler_worker.scheduling.options import DEFAULT_FILTERS, Options
from scheduler_worker.scheduling.ovirt.policies import LOCKED_POLICIES
from scheduler_worker.scheduling.pipeline import Pipeline, Request
from scheduler_worker.service.policies.units import load_units

_WINDOWS = 3
"""How often we and the peer take turns in a row of the table."""
_NEVER_SEEN = 20
"""How many classes are met for the first time."""


class Kind(NamedTuple):
    """A kind of request, and the hosts that it is decided on."""

    spec: Callable[[int, int], dict]
    reports: Callable[[int], Iterable[dict]] = fleet.reports
    filters: tuple[str, ...] = ()
    """Beside the default ones."""
    most_hosts: int = 100_000
    """The default; more would take minutes for each row."""
    policy: ClusterPolicy | None = None
    """The policy of the cluster; None: ``nova``, with the default filters."""


KINDS = {
    "plain": Kind(fleet.plain),
    "inventories": Kind(fleet.plain, fleet.reports_with_inventories, most_hosts=10_000),
    "constrained": Kind(fleet.constrained),
    "numa": Kind(fleet.pinned, fleet.reports_with_cells, fleet.INSIDE, 10_000),
} | {
    policy.name: Kind(
        fleet.highly_available, fleet.reports_with_loads, most_hosts=10_000, policy=policy
    )
    for policy in LOCKED_POLICIES
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--hosts", type=int, nargs="+", help="100 to 100,000; with --peer 1,000 and 10,000"
    )
    parser.add_argument(
        "--requests", nargs="+", choices=KINDS, help="all; of a policy's name: under that policy"
    )
    parser.add_argument("--instances", type=int, nargs="+", help="1 and 10; with --peer 1")
    parser.add_argument(
        "--classes", type=int, nargs="+", help="how many flavors take turns: 3, 30; with --peer 3"
    )
    parser.add_argument("--seconds", type=float, default=1.0, help="for each row of the table")
    peer.add_arguments(parser)


def run(arguments: argparse.Namespace) -> list[dict]:
    alone = not arguments.peer
    sizes = arguments.hosts or ([100, 1000, 10_000, 100_000] if alone else [1000, 10_000])
    classes = arguments.classes or ([3, 30] if alone else [3])
    instances = arguments.instances or ([1, 10] if alone else [1])
    rows = []
    for hosts, name in itertools.product(sizes, arguments.requests or KINDS):
        if not arguments.requests and hosts > KINDS[name].most_hosts:
            continue
        if arguments.peer and KINDS[name].policy is not None:
            continue
        with contextlib.ExitStack() as stack:
            bench = Bench(KINDS[name], hosts, arguments.seconds)
            if arguments.peer:
                bench.peer = bench.beside(arguments.peer_python)
                stack.callback(bench.peer.close)
            rows += [
                {"hosts": hosts, "request": name} | bench.row(*shape)
                for shape in itertools.product(classes, instances)
            ]
    show("Decision (default filters, all weighers; or an oVirt policy; ms)", rows)
    return rows


class Bench:
    """One kind of request on hosts that have not been evaluated before."""

    def __init__(self, kind: Kind, hosts: int, seconds: float) -> None:
        self._kind = kind
        self._seconds = seconds
        self._reports, self._aggregates = list(kind.reports(hosts)), fleet.aggregates(hosts)
        self._table = fleet.table(self._reports, self._aggregates)
        options = Options(enabled_filters=DEFAULT_FILTERS + kind.filters)
        groups = map(registered, (FILTERS, WEIGHERS, *POLICY_UNITS))
        catalogue, nova = load_units(options, *groups)
        self._pipeline = compile_policy(kind.policy or nova, catalogue, options)
        self.peer: peer.Peer | None = None
        self._first_ms = self._first_times([self._spec(3, 3072)], 1)[0]

    def beside(self, python: Path) -> peer.Peer:
        """Nova with the same hosts."""
        return peer.Peer(python, self._reports, self._aggregates, self._kind.filters)

    def row(self, classes: int, instances: int) -> dict:
        """``first_ms`` is the first decision of all, ``new_ms`` the first one of other classes."""
        never_seen = [self._spec(2, 2050 + 512 * at) for at in range(_NEVER_SEEN)]
        new = self._first_times(never_seen, instances)
        plain = [self._kind.spec(1 + at % 4, 2048 + 512 * at) for at in range(classes)]
        seen = self._decisions([fleet.spec_of(each) for each in plain], instances)
        chosen, *_ = [seen.once() for _ in plain]
        seen.times.clear()
        windows = []
        for _ in range(_WINDOWS):
            seen.window(self._seconds / _WINDOWS)
            if self.peer:
                windows.append(self.peer.window(plain[0], instances))
        seen.end()
        row = {
            "classes": classes,
            "instances": instances,
            "median_ms": percentile(seen.times, 0.5),
            "p99_ms": percentile(seen.times, 0.99),
            "new_ms": percentile(new, 0.5),
            "first_ms": self._first_ms,
            "runs": len(seen.times),
        }
        return row | (peer.compared(windows, row["median_ms"], chosen) if windows else {})

    def _spec(self, vcpus: int, memory_mb: int) -> RequestSpec:
        return fleet.spec_of(self._kind.spec(vcpus, memory_mb))

    def _decisions(self, specs: Sequence[RequestSpec], instances: int) -> "Decisions":
        return Decisions(self._pipeline, self._table, specs, instances)

    def _first_times(self, specs: Sequence[RequestSpec], instances: int) -> list[float]:
        """The times of one decision of each class, in ms; the claims are given back."""
        self._table.evaluation_cache.clear()
        decisions = self._decisions(specs, instances)
        for _ in specs:
            decisions.once()
        decisions.end()
        return decisions.times


class Decisions:
    """Requests of several classes in turn.

    A claim is given back after as many decisions as there are classes, so hosts do not fill up.
    """

    def __init__(
        self, pipeline: Pipeline, table: HostTable, specs: Sequence[RequestSpec], instances: int
    ) -> None:
        self._pipeline = pipeline
        self._table = table
        self._specs = specs
        self._instances = instances
        self._rng = random.Random(1)
        self._live: list[tuple[Claim, ...]] = []
        self._count = 0
        self.times: list[float] = []
        """The time of each decision in ms."""

    def once(self) -> list[str]:
        """Decide the next request; the chosen hosts."""
        uuids = tuple(f"i{self._count}-{each}" for each in range(self._instances))
        spec = self._specs[self._count % len(self._specs)]
        request = Request(spec=spec, instance_uuids=uuids)
        started = time.perf_counter()
        decided = self._pipeline.decide(self._table, request, self._rng)
        self.times.append(1000 * (time.perf_counter() - started))
        self._count += 1
        self._live.append(decided.claims)
        if len(self._live) > len(self._specs):
            self._end_first()
        return [some[0].service_host for some in decided.selections]

    def window(self, seconds: float) -> None:
        """Decide for a while: each class at least once, and 2,000 times in all at most."""
        begun, stop = len(self.times), time.perf_counter() + seconds
        while len(self.times) < begun + len(self._specs) or (
            time.perf_counter() < stop and len(self.times) < 2000
        ):
            self.once()

    def end(self) -> None:
        """Give back every claim."""
        while self._live:
            self._end_first()

    def _end_first(self) -> None:
        for claim in self._live.pop(0):
            self._table.give_back(claim.id)
