"""The check for overbooked hosts, the summary of a replay and its exit status."""

import json

import pytest
from replay.books import Books, limit_of, size_of
from replay.check import overbooked, reservations
from replay.cli import replay
from replay.driver import Settings
from replay.streams import Stream
from replay.summary import latencies_ms

from tests.support.first_fit import FirstFit, arrival
from tests.support.services import host


@pytest.fixture
def replayed(tmp_path, capsys):
    """Run the tool's own replay() on a few hosts; return (status, lines, json)."""

    def run(worker, count=10):
        arrivals = [arrival(n, at_s=n) for n in range(count)]
        stream = Stream([host("h0"), host("h1")], [], arrivals, count)
        path = tmp_path / "out.json"
        status = replay(worker, stream, Settings(clients=1), path)
        return status, capsys.readouterr().out.splitlines(), json.loads(path.read_text())

    return run


def test_a_correct_replay_explains_a_refusal_and_succeeds(replayed):
    status, lines, found = replayed(FirstFit())
    assert status == 0
    assert lines[0] == "placed 8 of 10 (refused 2)"
    assert "decisions/s (10 in" in lines[1]
    assert lines[2].startswith("latency ms: p50 ")
    assert lines[3] == "live instances 8, reservations left at the worker 0"
    at = lines.index("refused, for example: f (1 vCPU, 1,024 MiB)")
    assert lines[at + 1].split() == ["CoreFilter", "2", "->", "0"]
    assert lines[at + 2] == "  h0: CoreFilter: has 0 of 1 vCPUs free"
    assert lines[-1] == "checked: no host is overbooked"
    assert (found["placed"], found["refused"], found["live_promises"]) == (8, 2, 0)
    assert found["fill"] == {"vcpus": 1.0, "memory_mb": 0.5, "disk_gb": 0.4}


def test_an_overbooking_worker_fails(replayed):
    status, lines, found = replayed(FirstFit(fits=False))
    assert status == 1
    assert "OVERBOOKED: 4 excesses" in lines
    assert "books: h0 has 10 vcpus used or reserved of 4" in found["over_promised"]


def test_reservations_that_are_never_absorbed_are_counted(replayed):
    status, lines, found = replayed(FirstFit(absorbs=False), count=8)
    assert (status, found["live_promises"]) == (1, 8)
    assert "  worker: h0 has 8 vcpus used or reserved of 4" in lines


def test_a_replay_with_errors_fails(replayed):
    worker = FirstFit()
    del worker.specs
    status, lines, _ = replayed(worker, count=1)
    assert status == 1
    assert lines[1].startswith("failed 1 (AttributeError 1): 'FirstFit' object has no")


def test_the_check_counts_use_in_the_books_and_reservations_on_top_of_it():
    full = host("h0", vcpus_used=4, memory_mb_used=8192, local_gb_used=100)
    worker, books = FirstFit(fits=False), Books([full])
    worker.update_hosts([full])
    assert overbooked(worker, books) == []
    for number in range(5):
        worker.select_destinations(arrival(number).spec, [f"vm-{number}"])
    assert len(reservations(worker)) == 5  # of several pages
    books.place("vm", "uuid-h0", arrival(0).spec)
    problems = overbooked(worker, books)
    assert "worker: h0 has 9 vcpus used or reserved of 4" in problems
    assert "books: h0 has 5 vcpus used or reserved of 4" in problems


def test_a_limit_is_what_is_not_reserved_times_the_ratio_and_swap_is_disk():
    reserved = {"reserved_host_cpus": 1, "reserved_host_memory_mb": 192}
    reserved["reserved_host_disk_mb"] = 10 * 1024
    ratios = {"cpu_allocation_ratio": 2.0, "ram_allocation_ratio": 1.5}
    assert limit_of(host("h0", **reserved, **ratios)) == (6.0, 12000.0, 90.0)
    flavor = {"vcpus": 1, "memory_mb": 1, "root_gb": 3, "ephemeral_gb": 2, "swap": 1025}
    assert size_of(flavor).disk_gb == 7


def test_latencies_are_percentiles_by_nearest_rank():
    seconds = [number / 1000 for number in range(101)]
    assert latencies_ms(seconds) == {"p50": 50.0, "p90": 90.0, "p99": 99.0, "max": 100.0}
    assert latencies_ms([]) == {}
