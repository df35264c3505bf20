"""The shipped fleet is the generator's output for the shipped figures."""

import gzip
import json
from collections import Counter
from pathlib import Path
from random import Random

import msgspec
import pytest
from generate import figures
from generate.cli import generate
from replay.books import limit_of, use_of

from scheduler_worker.model.host_records import HostReport

FLEET = Path(__file__).resolve().parents[3] / "examples" / "fleet"
FIGURES = FLEET / "distributions.json"


@pytest.fixture(scope="module")
def made():
    return generate(FIGURES, hosts=1000, requests=20000)


@pytest.fixture(scope="module")
def hosts(made):
    return [json.loads(line) for line in made["hosts.jsonl"].splitlines()]


@pytest.fixture(scope="module")
def requests(made):
    return [json.loads(line) for line in made["requests.jsonl"].splitlines()]


def test_the_shipped_files_are_made_again_to_the_byte(made):
    assert (FLEET / "aggregates.json").read_text() == made["aggregates.json"]
    for name in ("hosts.jsonl", "requests.jsonl"):
        packed = (FLEET / f"{name}.gz").read_bytes()
        assert packed[4:8] == bytes(4)  # no time of day
        assert gzip.decompress(packed).decode() == made[name]


def test_hosts_are_complete_reports_with_room_in_every_limit(hosts):
    assert len({host["uuid"] for host in hosts}) == len({host["host"] for host in hosts}) == 1000
    for host in hosts:
        msgspec.convert(host, HostReport)
        assert host.keys() <= set(HostReport.__struct_fields__)
        assert all(use <= limit for use, limit in zip(use_of(host), limit_of(host), strict=True))
    assert any(host["service"]["disabled"] for host in hosts)
    assert any(not host["service"]["up"] for host in hosts)
    assert any(host["vcpus_used"] == 0 for host in hosts)


def test_flavors_and_life_times_are_the_published_ones(requests):
    published = json.loads(FIGURES.read_text())["huawei_east_1"]["vcpu_ramGB_share"]
    flavors = [request["spec"]["flavor"] for request in requests]
    counts = Counter((each["vcpus"], each["memory_mb"] // 1024) for each in flavors)
    for vcpus, ram_gb, share in published:
        assert counts[vcpus, ram_gb] / 20000 == pytest.approx(share, abs=0.012)
    known = figures.read(FIGURES)
    rng = Random(5)
    lives_h = [figures.lifetime_s(rng, known) / 3600 for _ in range(20000)]
    for hours, share in known.lifetime_hours_cdf:
        assert sum(life <= hours for life in lives_h) / 20000 == pytest.approx(share, abs=0.012)
    assert min(lives_h) >= figures.SHORTEST_LIFE_HOURS


def test_the_stream_has_every_kind_of_request(requests):
    specs = [request["spec"] for request in requests]
    policies = {spec["instance_group"]["policy"] for spec in specs if "instance_group" in spec}
    assert policies == {"affinity", "anti-affinity", "soft-affinity", "soft-anti-affinity"}
    assert {spec.get("availability_zone") for spec in specs} == {None, "az1", "az2", "az3", "az9"}
    assert any("different_host" in spec.get("scheduler_hints", {}) for spec in specs)
    assert any(spec.get("is_bfv") for spec in specs)
    scopes = {key.split(":")[0] for spec in specs for key in spec["flavor"]["extra_specs"]}
    assert scopes == {"capabilities", "aggregate_instance_extra_specs"}
