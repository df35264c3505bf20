"""scheduler-workerctl capacity and explain: against a worker in this process."""

import io
import json

import pytest

from scheduler_worker.cli.requests import capacity_text
from scheduler_worker.model.capacity import (
    ClusterCapacity,
    FlavorCapacity,
    LimitingResource,
    RejectedHosts,
)
from scheduler_worker.operations.requests import CapacityAnswer
from tests.support.services import host

FIGURES = ("--vcpus", "1", "--ram", "1024")


@pytest.fixture
def run(client, ctl):
    """Runs a command where two clusters have three hosts."""
    ratios = {"cpu_allocation_ratio": 1.0, "ram_allocation_ratio": 1.0}
    client.update_hosts(
        [
            host(name, cluster=cluster, memory_mb=memory_mb, local_gb=0, **ratios)
            for name, cluster, memory_mb in (
                ("a", "east", 2048), ("b", "east", 8192), ("c", "west", 512),
            )
        ]
    )  # fmt: skip

    def run(*words, status=0):
        found, out, err = ctl(*words)
        assert found == status
        return err if status else out

    return run


def test_capacity_of_one_flavor(run):
    assert run("capacity", *FIGURES).splitlines() == [
        "1 vCPUs, 1,024 MiB: 6 more, MEMORY_MB runs out first",
        "  east: 6 on 2 of 2 hosts",
        "    by zone: nova 6",
        "    limited by VCPU: 1 host",
        "    limited by MEMORY_MB: 1 host",
        "  west: 0 on 0 of 1 host",
        "    by zone: nova 0",
        "    limited by MEMORY_MB: 1 host, 1 of them full",
    ]


def test_capacity_of_what_openstack_lists(run, monkeypatch):
    listed = [
        {"ID": "1", "Name": "m1", "RAM": 1024, "Disk": 0, "Ephemeral": 0, "VCPUs": 1, "Swap": "",
         "Is Public": True, "RXTX Factor": 1.0, "Properties": {"hw:numa_nodes": "1"}},
        {"ID": "2", "Name": "m2", "RAM": 1024, "Disk": 0, "Ephemeral": 0, "VCPUs": 1, "Swap": 0,
         "Is Public": True, "RXTX Factor": 1.0, "Properties": {}},
    ]  # fmt: skip
    monkeypatch.setattr("sys.stdin", io.StringIO(json.dumps(listed)))
    found = json.loads(run("capacity", "-", "--json"))
    assert [(each["name"], each["instances"]) for each in found] == [("m1", 6), ("m2", 6)]


def test_what_was_not_counted_and_what_was_not_counted_to_the_end_is_said():
    counted = ClusterCapacity(
        cluster="east", is_exact=False, instances=1234, hosts=1000, fitting_hosts=7,
        zones={"az1": None}, limited_by={"MEMORY_MB": LimitingResource(hosts=3, full_hosts=1)},
        lost_to={"ComputeFilter": RejectedHosts(hosts=2, instances=None)},
    )  # fmt: skip
    failed = ClusterCapacity(cluster="west", problem="no such unit")

    def shown(*clusters):
        flavor = FlavorCapacity(
            name="m1", is_exact=False, instances=None, runs_out_first=None, clusters=clusters
        )
        return capacity_text(CapacityAnswer([flavor]))

    assert shown(counted, failed).splitlines() == [
        "m1: up to any number more",
        "  east: up to 1,234 on 7 of 1,000 hosts",
        "    by zone: az1 any number",
        "    limited by MEMORY_MB: 3 hosts, 1 of them full",
        "    rejected by ComputeFilter: 2 hosts, with room for any number",
        "  west: not counted: no such unit",
    ]
    assert shown(failed).startswith("m1: not counted\n")


def test_an_explanation_of_a_placement_and_of_one_host(run):
    first, *lines = run("explain", *FIGURES, "--cluster", "east").splitlines()
    assert first.startswith("Host b: first of 2 hosts that pass, by RAMWeigher (1.00)")
    assert lines[0].startswith("cluster east: 2 hosts under policy nova version ")
    assert lines[1].startswith("  host b: passes, weight ")
    words = run("explain", *FIGURES, "--cluster", "east", "--why-not", "c")
    assert words.splitlines()[-1] == "c: is in cluster west, and the request names another"


def test_an_explanation_of_a_file(run, tmp_path):
    path = tmp_path / "request.json"
    path.write_text(
        json.dumps(
            {"flavor": {"vcpus": 1, "memory_mb": 4096}, "scheduler_hints": {"cluster": "west"}}
        )
    )
    first, *lines = run("explain", str(path)).splitlines()
    assert first.startswith("No host: of 1 host none has 4,096 MiB of memory left; nearest is "
                            "host c, short of 3,584 MiB of memory")  # fmt: skip
    assert "  RamFilter: 1 -> 0" in lines
    assert json.loads(run("explain", str(path), "--json", "--cluster", "east"))["chosen"] == "b"


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (("capacity",), 2, "Give a file of flavors, or one flavor's figures"),
        (("capacity", "x.yaml", "--vcpus", "1"), 2, "Give a file of flavors, or"),
        (("capacity", "/no/such.yaml"), 2, "/no/such.yaml: cannot be read: "),
        (("capacity", "--vcpus", "1"), 1, "flavors[0].memory_mb: is missing"),
        (("explain",), 2, "Give a request's file, or a flavor's figures"),
        (("explain", *FIGURES, "--cluster", "north"), 1, "there is no cluster 'north'"),
        (("explain", "--vcpus", "1"), 1, "spec_obj.flavor.memory_mb: is missing"),
    ],
)
def test_an_error_is_one_sentence(run, words, status, said):
    assert said in run(*words, status=status)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: [", "2:1: did not find expected"),
        ("7", " expected a list of flavors"),
        ("flavors: 7", " expected a list of flavors"),
        ("{flavors: [], spec_obj: 7}", " spec_obj: expected fields"),
    ],
)
def test_a_file_that_cannot_be_used_is_named(run, tmp_path, text, said):
    path = tmp_path / "flavors.yaml"
    path.write_text(text)
    assert f"{path}:{said}" in run("capacity", str(path), status=2)


def test_a_property_needs_a_value(run, capsys):
    with pytest.raises(SystemExit):
        run("capacity", *FIGURES, "--property", "trait:X")
    assert "expected KEY=VALUE, got 'trait:X'" in capsys.readouterr().err
