"""Runs recorded from MOM, the Memory Overcommitment Manager, repeated with our stock policies."""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from conformance.reading import Malformed
from scheduler_worker.tuning import loader
from scheduler_worker.tuning.averages import MovingAverages, Windows
from scheduler_worker.tuning.evaluate import Cycle, evaluate
from scheduler_worker.tuning.program import Program
from scheduler_worker.tuning.samples import Entity, EvaluatorState, Sample, entity_groups
from scheduler_worker.tuning.yaml_subset import Source

STOCK = Path(__file__).resolve().parents[2] / "etc" / "scheduler_worker" / "tuning"
INTERVAL_S = 15.0
EXACT = 1e-12
POLICIES = {
    "vdsm": ("ballooning", "ksm", "cpu", "io"),
    "vdsm-balloon": ("ballooning",),
    "vdsm-ksm": ("ksm",),
    "vdsm-cputune": ("cpu",),
    "vdsm-iotune": ("io",),
}
SWITCHES = {
    "balloonEnabled": ("balloon_enabled", 0),
    "ksmEnabled": ("ksm_enabled", 1),
    "ksmMergeAcrossNodes": ("ksm_merge_across_nodes", 1),
    "cpuTuneEnabled": ("cpu_tune_enabled", 1),
    "ioTuneEnabled": ("io_tune_enabled", 1),
}
GUEST_OUTPUTS = {
    "memory.balloon": ("balloon_target", "balloon_cur"),
    "cpu.quota": ("vcpu_quota", "vcpu_quota"),
    "cpu.period": ("vcpu_period", "vcpu_period"),
}
"""The outputs of MOM, each with the statistic that is its present value."""
KSM = ("run", "pages_to_scan", "sleep_millisecs", "merge_across_nodes")
HOST_OUTPUTS = {f"ksm.{name}": (f"ksm_{name}", f"ksm_{name}") for name in KSM}

Figures = dict[str, Any]


class Scenario(msgspec.Struct, frozen=True):
    """The scenario of a run."""

    policy_set: str
    cycles: list[dict[str, Any]]
    params: dict[str, Any] = {}
    history_length: int = 10


class Collected(msgspec.Struct, frozen=True):
    """The figures that the policy saw."""

    host: Figures
    guests: dict[str, Figures]


class Expected(msgspec.Struct, frozen=True):
    """The results of a cycle."""

    collected: Collected
    policy_ok: bool
    host: Figures
    guests: dict[str, Figures]
    calls: list[list[Any]] = []


class Case(msgspec.Struct, frozen=True):
    """A run."""

    name: str
    scenario: Scenario
    expected: list[Expected]


def recognise(document: Any) -> bool:
    return isinstance(document, dict) and {"scenario", "expected"} <= document.keys()


def run(document: Any) -> Iterator[str]:
    case = msgspec.convert(document, Case)
    if case.scenario.policy_set not in POLICIES:
        raise Malformed(f"no policy set {case.scenario.policy_set}")
    names = POLICIES[case.scenario.policy_set]
    program = loader.load(Source(name, (STOCK / f"{name}.yaml").read_text()) for name in names)
    history = _History(case.scenario, program)
    state = EvaluatorState()
    for number, (given, expected) in enumerate(
        zip(case.scenario.cycles, case.expected, strict=True), 1
    ):
        sample = history.sample(expected.collected, given)
        now_s = number * INTERVAL_S
        groups = entity_groups({"host": sample})
        cycle = evaluate(program, groups, state, now_s, initial_elapsed_s=INTERVAL_S)
        state = cycle.state
        for difference in differences(cycle, expected, history.disks):
            yield f"{case.name}: cycle {number}: {difference}"


class _History:
    """The last samples of all entities, as our policies see them."""

    def __init__(self, scenario: Scenario, program: Program) -> None:
        self._averages = MovingAverages.read_by(program, scenario.history_length)
        self._windows: dict[Entity, Windows] = {}
        self._switches = {
            name: scenario.params.get(key, default) for key, (name, default) in SWITCHES.items()
        }
        self.disks: dict[str, dict[str, dict[str, Any]]] = {}

    def sample(self, collected: Collected, given: dict[str, Any]) -> Sample:
        """A cycle's statistics with averages; those of a guest that was away start again."""
        for name, row in (given.get("guests") or {}).items():
            self._keep_disks(name, row)
        for _ in range(given.get("samples", 1)):
            vms = {name: self._guest(row) for name, row in collected.guests.items()}
            sample = Sample(self._host(collected.host), vms, self.disks)
            self._windows = self._averages.add_to(sample, "host", self._windows, is_new=True)
        return sample

    def _host(self, row: Figures) -> dict[str, Any]:
        ksm = {key.removeprefix("ksm_"): value for key, value in row.items()}
        return {"host": row, "ksm": ksm, "policy": self._switches}

    def _guest(self, row: Figures) -> dict[str, Any]:
        balloon = row.get("balloon_cur")
        bounds = {key: row.get(key) for key in ("balloon_min", "balloon_max")}
        cpu = {key.removeprefix("vcpu_"): value for key, value in row.items()}
        return {
            "memory": {
                "balloon": balloon,
                "balloon_cur": balloon,
                "unused": row.get("mem_unused"),
            },
            "cpu": cpu | {"vcpu_count": row.get("vcpu_count")},
            "policy": self._switches | bounds,
        }

    def _keep_disks(self, name: str, row: Figures | None) -> None:
        for disk in (row or {}).get("io_tune") or ():
            self.disks.setdefault(name, {})[disk["name"]] = {
                "disk": {"name": disk["name"], "path": disk["path"]},
                "io": disk["ioTune"],
                "policy": disk["maximum"] | self._switches,
            }


def differences(cycle: Cycle, expected: Expected, disks: Figures) -> Iterator[str]:
    """The differences of our outputs from MOM's.

    Where MOM gave up its whole cycle, ours leaves out the bad rule alone; the outputs that MOM had
    set by then are compared.
    """
    ours = {str(entity): made for entity, made in cycle.changes.items()}
    collected = expected.collected
    rows = [("host", HOST_OUTPUTS, collected.host, expected.host)]
    rows += [
        (name, GUEST_OUTPUTS, row, expected.guests.get(name, {}))
        for name, row in collected.guests.items()
    ]
    for name, outputs, present, theirs in rows:
        for output, (key, present_key) in outputs.items():
            if key not in theirs and not expected.policy_ok:
                continue
            now = present.get(present_key)
            given, wanted = ours.get(name, {}).get(output, now), theirs.get(key, now)
            if not same(given, wanted, now):
                yield f"{name} {output} is {given}; MOM's is {wanted}"
    for call, *arguments in expected.calls:
        if call == "setVmIoTune":
            yield from _io_differences(ours, disks, *arguments)


def _io_differences(
    ours: dict[str, Figures], disks: Figures, uuid: str, theirs: list[Figures]
) -> Iterator[str]:
    vm = uuid.removeprefix("uuid-")
    for disk in theirs:
        name = disk["name"]
        set_to = disks[vm][name]["io"] | {
            key.removeprefix("io."): value for key, value in ours.get(f"{vm}/{name}", {}).items()
        }
        if set_to != disk["ioTune"]:
            yield f"{vm}/{name} is {set_to}; MOM's is {disk['ioTune']}"


def same(given: float | None, wanted: float | None, now: float | None) -> bool:
    """Whether values are equal up to rounding, or truncate to the present value."""
    if given is None or wanted is None:
        return given is wanted
    if now is not None and int(given) == int(now) == int(wanted):
        return True
    return int(given) == int(wanted) and math.isclose(given, wanted, rel_tol=EXACT)
