"""The readers of streams."""

import gzip
import json
import sqlite3
from contextlib import closing

import pytest
from replay.streams import azure_packing, fleet, openb

NODES = """sn,cpu_milli,memory_mib,gpu,model
openb-node-0000,32000,262144,0,
openb-node-0001,96000,393216,8,G2
"""
PODS = """name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time
late,12000,16384,1,1000,,LS,Running,900,1000,900
first,3500,12288,1,460,,BE,Running,10,70,10
for-ever,0,0,0,0,,LS,Pending,20,,
"""  # noqa: E501 - the header of the published file


@pytest.fixture
def openb_files(tmp_path):
    (tmp_path / "nodes.csv").write_text(NODES)
    (tmp_path / "pods.csv").write_text(PODS)
    return tmp_path / "nodes.csv", tmp_path / "pods.csv"


@pytest.fixture
def trace(tmp_path):
    path = tmp_path / "packing.sqlite"
    with closing(sqlite3.connect(path)) as db, db:
        db.executescript(
            """
            CREATE TABLE vm (vmId, tenantId, vmTypeId, priority, starttime, endtime);
            CREATE TABLE vmType (id, vmTypeId, machineId, core, memory, hdd, ssd, nic);
            INSERT INTO vmType VALUES (1, 7, 0, 0.25, 0.1, NULL, 0.01, 0.1);
            INSERT INTO vmType VALUES (2, 7, 3, 0.5, 0.2, NULL, 0.02, 0.1);
            INSERT INTO vmType VALUES (3, 8, 3, 0.001, 0.000001, 0.1, 0, 0);
            INSERT INTO vm VALUES (1, 50, 8, 0, 0.5, 0.75);
            INSERT INTO vm VALUES (2, 51, 7, 1, -1.5, NULL);
            """
        )
    return path


def test_our_own_form_is_read_packed_or_not_up_to_the_limit(tmp_path):
    request = {"at_s": 1.5, "lifetime_s": 60, "instance_uuid": "u", "spec": {"flavor": {}}}
    (tmp_path / "hosts.jsonl").write_text('{"host": "h"}\n')
    packed = gzip.compress((json.dumps(request) + "\n").encode() * 3)
    (tmp_path / "requests.jsonl.gz").write_bytes(packed)
    stream = fleet.read(tmp_path, limit=2)
    assert (stream.hosts, stream.aggregates, stream.length) == ([{"host": "h"}], [], 2)
    assert [each.at_s for each in stream.arrivals] == [1.5, 1.5]


def test_openb_rounds_vcpus_up_and_keeps_devices_out_of_the_resources(openb_files):
    stream = openb.read(*openb_files)
    assert [(h["host"], h["vcpus"], h["memory_mb"]) for h in stream.hosts] == [
        ("openb-node-0000", 32, 262144),
        ("openb-node-0001", 96, 393216),
    ]
    assert stream.hosts[1]["stats"] == {"gpu": 8, "gpu_model": "G2"}
    first, for_ever, late = stream.arrivals
    assert (first.at_s, first.lifetime_s) == (10, 60)
    assert (first.spec["flavor"]["vcpus"], first.spec["flavor"]["memory_mb"]) == (4, 12288)
    assert for_ever.lifetime_s is None
    assert for_ever.spec["flavor"]["vcpus"] == 1
    assert late.at_s == 900


def test_the_seed_makes_the_uuids(openb_files):
    def uuids(seed):
        return [each.instance_uuid for each in openb.read(*openb_files, seed=seed).arrivals]

    assert uuids(1) == uuids(1)
    assert set(uuids(1)).isdisjoint(uuids(2))


def test_the_packing_trace_is_scaled_to_a_nominal_machine(trace):
    stream = azure_packing.read(trace, hosts=3)
    assert [each["host"] for each in stream.hosts] == [f"machine-{n:05d}" for n in range(3)]
    early, later = stream.arrivals
    assert (early.at_s, early.lifetime_s) == (0.0, None)
    assert (later.at_s, later.lifetime_s) == (2.0 * 86400, 0.25 * 86400)
    # Most types fit on machine 3, so type 7 has its size there.
    assert early.spec["flavor"]["vcpus"] == 64
    assert early.spec["flavor"]["memory_mb"] == 104858
    assert early.spec["flavor"]["root_gb"] == 160
    assert (later.spec["flavor"]["vcpus"], later.spec["flavor"]["memory_mb"]) == (1, 1)
