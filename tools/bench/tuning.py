"""One cycle of tuning: stock policies evaluated for all hosts, VMs and disks of a cluster."""

import argparse
import random
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from bench.table import percentile, show
from scheduler_worker.tuning import loader
from scheduler_worker.tuning.evaluate import Cycle, evaluate
from scheduler_worker.tuning.program import Program
from scheduler_worker.tuning.samples import EvaluatorState, Sample, entity_groups
from scheduler_worker.tuning.yaml_subset import Source

STOCK = Path(__file__).resolve().parents[2] / "etc" / "scheduler_worker" / "tuning"
INTERVAL_S = 15.0
GIB = 1 << 20
"""In KiB, as all sizes here."""
Result = TypeVar("Result")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--vms", type=int, nargs="+", default=[1000, 10_000])
    parser.add_argument("--hosts", type=int, default=200, help="which the VMs are spread over")
    parser.add_argument("--policies", nargs="+", default=["ballooning", "ksm", "cpu", "io"])
    parser.add_argument("--cycles", type=int, default=50, help="for each row of the table")


def run(arguments: argparse.Namespace) -> list[dict]:
    rows = []
    for vms in arguments.vms:
        for name in arguments.policies:
            source = Source(name, (STOCK / f"{name}.yaml").read_text())
            compiled = [_timed(partial(loader.load, [source])) for _ in range(10)]
            program = compiled[0][1]
            cycles = _cycles(program, _fleet(arguments.hosts, vms), arguments.cycles)
            rows.append(
                {
                    "hosts": arguments.hosts,
                    "vms": vms,
                    "policy": name,
                    "median_ms": percentile(cycles, 0.5),
                    "p99_ms": percentile(cycles, 0.99),
                    "compile_ms": percentile([each_ms for each_ms, _ in compiled], 0.5),
                }
            )
    show("A cycle of tuning (stock policies; ms)", rows)
    return rows


def _cycle(
    program: Program, fleet: dict[str, Sample], state: EvaluatorState, now_s: float
) -> Cycle:
    return evaluate(program, entity_groups(fleet, program.plans), state, now_s)


def _cycles(program: Program, fleet: dict[str, Sample], count: int) -> list[float]:
    """The time of each cycle; between cycles VMs change, and agents apply the values."""
    state, rng, times = EvaluatorState(), random.Random(1), []
    for number in range(count + 1):
        now_s = number * INTERVAL_S
        took_ms, cycle = _timed(partial(_cycle, program, fleet, state, now_s))
        if cycle.diagnostics:
            raise RuntimeError(f"a rule was left out: {cycle.diagnostics[0]}")
        state = cycle.state
        times.append(took_ms)
        _go_on(fleet, cycle, rng)
    return times[1:]  # the first moves nothing


def _timed(do: Callable[[], Result]) -> tuple[float, Result]:
    started = time.perf_counter()
    done = do()
    return 1000 * (time.perf_counter() - started), done


def _fleet(hosts: int, vms: int) -> dict[str, Sample]:
    """Every other host is short of memory; every VM has a disk."""
    fleet = {f"host{number}": Sample(_host(number), {}, {}) for number in range(hosts)}
    for number in range(vms):
        sample = fleet[f"host{number % hosts}"]
        sample.vms[f"vm{number}"] = _vm()
        sample.disks[f"vm{number}"] = {"vda": {"io": {}, "policy": {"read_iops_sec": number}}}
    return fleet


def _host(number: int) -> dict:
    return {
        "host": {
            "mem_available": 64 * GIB,
            "mem_free_avg": (6.4 if number % 2 else 32.0) * GIB,
            "ksm_shareable": GIB,
            "cpu_count": 32,
        },
        "ksm": {
            "run": 0,
            "pages_to_scan": 64,
            "sleep_millisecs": 10,
            "merge_across_nodes": 1,
            "pages_shared": 0,
        },
        "policy": {"ksm_enabled": True, "ksm_merge_across_nodes": 1},
    }


def _vm() -> dict:
    return {
        "memory": {"balloon": 4 * GIB, "balloon_avg": 4.0 * GIB, "unused_avg": 2.0 * GIB},
        "cpu": {"user_limit": 50, "vcpu_count": 4, "quota": -1, "period": 100_000},
        "policy": {
            "balloon_enabled": True,
            "balloon_min": GIB,
            "balloon_max": 4 * GIB,
            "cpu_tune_enabled": True,
        },
    }


def _go_on(fleet: dict[str, Sample], cycle: Cycle, rng: random.Random) -> None:
    for sample in fleet.values():
        vms: dict[str, Any] = dict(sample.vms)
        disks: dict[str, Any] = dict(sample.disks)
        for name, vm in vms.items():
            memory = vm["memory"]
            memory["unused_avg"] = memory["balloon"] * rng.uniform(0.1, 0.9)
            vm["cpu"]["user_limit"] = rng.randrange(10, 101)
            for disk in disks[name].values():
                disk["policy"]["read_iops_sec"] = rng.randrange(1000)
    every = entity_groups(fleet)
    for group in every.values():
        for entity, objects in zip(group.entities, group.objects, strict=True):
            for output, value in cycle.changes.get(entity, {}).items():
                where, _, field = output.partition(".")
                found: Any = objects[where]
                found[field] = value
