"""The shipped fleet is the generator's output for the shipped figures."""

import gzip
import json
from collections import Counter
from pathlib import Path
from random import Random

import msgspec
import pytest

from scheduler_worker.model.aggregates import Aggregate
from scheduler_worker.model.host_records import HostReport
from scheduler_worker.model.requests import RequestSpec

FLEET = Path(__file__).resolve().parents[3] / "examples" / "fleet"


@pytest.fixture(scope="module")
def made():
    from generate.cli import generate

    return generate(FLEET / "distributions.json", hosts=1000, requests=20000)


def lines(text):
    return [json.loads(line) for line in text.splitlines()]


def test_the_shipped_files_are_made_again_to_the_byte(made):
    assert (FLEET / "aggregates.json").read_text() == made["aggregates.json"]
    for name in ("hosts.jsonl", "requests.jsonl"):
        assert gzip.decompress((FLEET / f"{name}.gz").read_bytes()).decode() == made[name]


def test_another_seed_makes_another_fleet():
    from generate.cli import generate

    figures = FLEET / "distributions.json"
    one, two = (generate(figures, hosts=5, requests=5, seed=seed) for seed in (1, 2))
    assert one["hosts.jsonl"] != two["hosts.jsonl"]
    assert one["requests.jsonl"] != two["requests.jsonl"]


def test_the_files_are_compressed_without_a_time(tmp_path):
    from generate.files import write_compressed

    write_compressed(tmp_path / "a.gz", "text\n")
    packed = (tmp_path / "a.gz").read_bytes()
    assert packed[4:8] == bytes(4)
    assert gzip.decompress(packed) == b"text\n"


def test_hosts_are_complete_reports_with_room_in_every_limit(made):
    from replay.books import limit_of, use_of

    hosts = lines(made["hosts.jsonl"])
    assert len({host["uuid"] for host in hosts}) == len({host["host"] for host in hosts}) == 1000
    for host in hosts:
        msgspec.convert(host, HostReport)
        assert host.keys() <= set(HostReport.__struct_fields__)
        assert all(use <= limit for use, limit in zip(use_of(host), limit_of(host), strict=True))
    assert sum(host["service"]["disabled"] for host in hosts) > 0
    assert sum(not host["service"]["up"] for host in hosts) > 0
    assert sum(host["vcpus_used"] == 0 for host in hosts) > 0


def test_every_host_is_in_one_zone_one_rack_and_one_disk_class(made):
    aggregates = msgspec.json.decode(made["aggregates.json"], type=list[Aggregate])
    names = {host["host"] for host in lines(made["hosts.jsonl"])}
    for key in ("availability_zone", "rack", "disk_class"):
        members = [host for each in aggregates if key in each.metadata for host in each.hosts]
        assert sorted(members) == sorted(names)


def test_requests_come_in_order_and_are_readable(made):
    requests = lines(made["requests.jsonl"])
    assert len({request["instance_uuid"] for request in requests}) == 20000
    moments = [request["at_s"] for request in requests]
    assert moments == sorted(moments)
    for request in requests:
        msgspec.convert(request["spec"], RequestSpec)
        assert request["spec"].keys() <= set(RequestSpec.__struct_fields__)


def test_the_flavor_mix_is_the_published_one(made):
    figures = json.loads((FLEET / "distributions.json").read_text())
    flavors = [request["spec"]["flavor"] for request in lines(made["requests.jsonl"])]
    counts = Counter((each["vcpus"], each["memory_mb"] // 1024) for each in flavors)
    for vcpus, ram_gb, share in figures["huawei_east_1"]["vcpu_ramGB_share"]:
        assert counts[vcpus, ram_gb] / 20000 == pytest.approx(share, abs=0.012)


def test_a_flavor_name_always_means_the_same_flavor(made):
    known = {}
    for request in lines(made["requests.jsonl"]):
        flavor = request["spec"]["flavor"]
        assert known.setdefault(flavor["name"], flavor) == flavor
    assert len({flavor["id"] for flavor in known.values()}) == len(known)


def test_life_times_follow_the_published_curve():
    from generate import figures

    known = figures.read(FLEET / "distributions.json")
    rng = Random(5)
    lives_h = [figures.lifetime_s(rng, known) / 3600 for _ in range(20000)]
    for hours, share in known.lifetime_hours_cdf:
        assert sum(life <= hours for life in lives_h) / 20000 == pytest.approx(share, abs=0.012)
    assert min(lives_h) >= figures.SHORTEST_LIFE_HOURS


def test_the_stream_has_every_kind_of_request(made):
    specs = [request["spec"] for request in lines(made["requests.jsonl"])]
    policies = {spec["instance_group"]["policy"] for spec in specs if "instance_group" in spec}
    assert policies == {"affinity", "anti-affinity", "soft-affinity", "soft-anti-affinity"}
    assert {spec.get("availability_zone") for spec in specs} == {None, "az1", "az2", "az3", "az9"}
    assert any("different_host" in spec.get("scheduler_hints", {}) for spec in specs)
    assert any(spec.get("is_bfv") for spec in specs)
    scopes = {key.split(":")[0] for spec in specs for key in spec["flavor"]["extra_specs"]}
    assert scopes == {"capabilities", "aggregate_instance_extra_specs"}


def test_the_repository_stays_small():
    assert sum(path.stat().st_size for path in FLEET.iterdir()) < 2_000_000
