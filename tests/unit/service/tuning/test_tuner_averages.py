"""A tuner and a dry run compute the same outputs from the averages of the same reports."""

from scheduler_worker.service.tuning.statistics import sample_of
from scheduler_worker.tuning import loader
from scheduler_worker.tuning.dry_run import dry_run
from scheduler_worker.tuning.yaml_subset import Source
from tests.support.tuners import INTERVAL_S, Scenario

POLICIES = {
    "host": "scope: Host\nrules: {r: {output: ksm.pages, target: host.free_avg + ksm.run_avg}}",
    "vm": "scope: VM\nrules: {r: {output: cpu.quota, target: host.free_avg + memory.unused_avg}}",
    "disk": """
scope: VM.disk
rules: {r: {output: io.limit, target: host.free_avg + memory.unused_avg + io.reads_avg}}
""",
}
SAMPLES = 3


def vm(unused, reads):
    return {"memory": {"unused": unused}, "disks": {"vda": {"io": {"reads": reads}}}}


REPORTS = [
    ({"free": 10, "ksm": {"run": 1}}, {"v1": vm(100, 1)}),
    ({"free": 13, "ksm": {}}, {"v1": vm(None, 3), "v2": vm(7, 7)}),
    ({"ksm": {"run": "on"}}, {"v1": vm(True, 8)}),
    ({"free": 31, "ksm": {"run": 2}}, {"v1": vm(400, "none"), "v2": vm(9, 9)}),
    ({"free": 43, "ksm": {"run": 6}}, {"v1": {}, "v2": {"disks": {"vda": {}}}}),
    ({"free": 54}, {"v1": vm(500, 2), "v2": vm(1, 2)}),
]


def tuned():
    """The outputs that the agent of host a is sent in each cycle, and the host's samples."""
    scenario = Scenario(samples=SAMPLES)
    scenario.files.texts = dict(POLICIES)
    sent, samples = [], []
    for load, vms in REPORTS:
        scenario.world.clock.advance(INTERVAL_S)
        scenario.agents.load, scenario.agents.more = load, vms  # type: ignore[assignment]
        scenario.agents.balloons = {"a": dict.fromkeys(vms, 0.0)}
        scenario.agents.report()
        before = len(scenario.agents.casts)
        scenario.tuner.run_due()
        casts = scenario.agents.casts[before:]
        sent.append({key: casts[0][key] for key in ("outputs", "vms", "disks")} if casts else {})
        replica = scenario.world.fleet.cluster("default")
        [record] = replica.table.records
        parameters = scenario.tuner.policies.parameters("default")
        samples.append(sample_of(record, parameters, vms))
    return sent, samples


def dry(samples):
    """The outputs of a dry run in each cycle, in the same form."""
    program = loader.load(Source(name, text) for name, text in sorted(POLICIES.items()))
    found = []
    for cycle in dry_run(program, samples, interval_s=INTERVAL_S, history=SAMPLES):
        made = {"outputs": {}, "vms": {}, "disks": {}}
        for entity, outputs in cycle.changes.items():
            if entity.scope == "Host":
                made["outputs"] = outputs
            elif entity.scope == "VM":
                made["vms"][entity.name] = outputs
            else:
                made["disks"].setdefault(entity.name, {})[entity.device] = outputs
        found.append(made if cycle.changes else {})
    return found


def test_a_tuner_and_a_dry_run_compute_the_same_averages():
    sent, samples = tuned()
    assert sent == dry(samples)
    assert sent[1]["vms"]["v2"] == {"cpu.quota": 11.5 + 7}, "of the time before the VM, too"
    last = sent[-1]
    assert last["outputs"] == {"ksm.pages": (31 + 43 + 54) / 3 + (2 + 6) / 2}
    assert last["vms"]["v1"] == {"cpu.quota": (31 + 43 + 54) / 3 + (400 + 500) / 2}
