"""Reports of hosts beside few clusters and beside many: CPU time of the worker's own part."""

import argparse
import itertools
import time
from collections.abc import Callable, Iterator

import msgspec

from bench import fleet
from bench.table import percentile, ratio, show
from scheduler_worker.backends.clock import SystemClock
from scheduler_worker.backends.memory import MemoryState
from scheduler_worker.model.host_reports import HostReport
from scheduler_worker.service.inventory.inventory import Inventory
from scheduler_worker.service.inventory.reports import InventorySettings
from scheduler_worker.service.state.replica import Fleet

_HOSTS = 10
"""In each cluster, and in each message."""
_TIMES = 100


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--clusters", type=int, nargs="+", default=[10, 100, 1000])


def run(arguments: argparse.Namespace) -> list[dict]:
    worlds = [_World(clusters) for clusters in arguments.clusters]
    for _, world in itertools.product(range(_TIMES), worlds):  # in turn
        world.measure()
    rows = [world.row(worlds[0]) for world in worlds]
    show("Reports (10 hosts in each cluster and message, memory://; ms of CPU a message)", rows)
    return rows


class _World:
    """An inventory with so many clusters."""

    def __init__(self, clusters: int) -> None:
        self._clusters = clusters
        self._inventory = Inventory(
            fleet=Fleet(MemoryState(SystemClock(), hold_timeout_s=3.0), default_cluster="default"),
            ratios=InventorySettings().ratios,
            reservation_ttl_s=600.0,
            remember_answers_s=120.0,
        )
        self._new = self._messages("new")
        self._known = [next(self._messages(f"c{number}")) for number in range(clusters)]
        self._numbers = itertools.count()
        self._figures: list[dict] = []
        begun_s = time.process_time()
        for message in self._known:
            self._inventory.update_hosts(message)
        self._built_s = time.process_time() - begun_s

    def measure(self) -> None:
        """A message of known hosts whose use changed, and one of hosts that nobody knows."""
        number = next(self._numbers)
        known = [
            msgspec.structs.replace(each, vcpus_used=number % 7)
            for each in self._known[number % self._clusters]
        ]
        new = next(self._new)
        self._figures.append({
            "known_ms": _cpu_ms(lambda: self._inventory.update_hosts(known)),
            "new_ms": _cpu_ms(lambda: self._inventory.update_hosts(new)),
        })  # fmt: skip

    def row(self, least: "_World") -> dict:
        figures = self._figures
        return {"clusters": self._clusters, "built_s": self._built_s} | {
            name: value
            for kind in ("known", "new")
            for name, value in (
                (f"{kind}_ms", percentile([each[f"{kind}_ms"] for each in figures], 0.5)),
                (f"{kind}_ratio", ratio(figures, least._figures, f"{kind}_ms")),
            )
        }

    def _messages(self, cluster: str) -> Iterator[list[HostReport]]:
        reports = fleet.reports(_HOSTS * (_TIMES if cluster == "new" else 1), cluster=cluster)
        while some := list(itertools.islice(reports, _HOSTS)):
            # These are read by the codec as a rule, and are not of interest here.
            plain = ({**each, "supported_hv_specs": []} for each in some)
            yield [msgspec.convert(each, HostReport) for each in plain]


def _cpu_ms(work: Callable[[], object]) -> float:
    begun_s = time.process_time()
    work()
    return 1000 * (time.process_time() - begun_s)
