"""The output and exit status of a replay."""

import io
import json

import pytest


@pytest.fixture
def replayed(first_fit, host, arrival, tmp_path, capsys):
    """Run the tool's own replay() on a few hosts; return (status, lines, json)."""

    def run(count=10, **kind):
        from replay.cli import replay
        from replay.driver import Settings
        from replay.streams import Stream

        arrivals = [arrival(n, at_s=n) for n in range(count)]
        stream = Stream([host(0), host(1)], [], arrivals, count)
        path = tmp_path / "out.json"
        status = replay(first_fit(**kind), stream, Settings(clients=1), path)
        return status, capsys.readouterr().out.splitlines(), json.loads(path.read_text())

    return run


def test_a_correct_replay_prints_its_summary_and_succeeds(replayed):
    status, lines, found = replayed()
    assert status == 0
    assert lines[0] == "placed 8 of 10 (refused 2)"
    assert lines[1].endswith("s)")
    assert "decisions/s (10 in" in lines[1]
    assert lines[2].startswith("latency ms: p50 ")
    assert lines[3] == "live instances 8, reservations left at the worker 0"
    assert lines[-1] == "checked: no host is overbooked"
    assert (found["placed"], found["refused"], found["live_promises"]) == (8, 2, 0)
    assert found["fill"] == {"vcpus": 1.0, "memory_mb": 0.5, "disk_gb": 0.4}


def test_the_refused_request_is_explained(replayed):
    _, lines, _ = replayed()
    at = lines.index("refused, for example: f (1 vCPU, 1,024 MiB)")
    assert lines[at + 1].split() == ["CoreFilter", "2", "->", "0"]
    assert lines[at + 2] == "  h0: CoreFilter: has 0 of 1 vCPUs free"


def test_an_overbooking_worker_fails(replayed):
    status, lines, found = replayed(fits=False)
    assert status == 1
    assert "OVERBOOKED: 4 excesses" in lines
    assert "books: h0 has 10 vcpus used or reserved of 4" in found["over_promised"]


def test_reservations_that_are_never_absorbed_are_counted(replayed):
    status, lines, found = replayed(count=8, absorbs=False)
    assert status == 1
    assert found["live_promises"] == 8
    assert "  worker: h0 has 8 vcpus used or reserved of 4" in lines


def test_a_replay_with_errors_fails(first_fit, host, arrival, capsys):
    from replay.cli import replay
    from replay.driver import Settings
    from replay.streams import Stream

    worker = first_fit()
    del worker.specs
    stream = Stream([host(0)], [], [arrival(0)], 1)
    assert replay(worker, stream, Settings(clients=1), None) == 1
    assert "failed 1 (AttributeError 1): 'FirstFit' object has no" in capsys.readouterr().out


def test_latencies_are_percentiles_by_nearest_rank():
    from replay.summary import latencies_ms

    seconds = [number / 1000 for number in range(101)]
    assert latencies_ms(seconds) == {"p50": 50.0, "p90": 90.0, "p99": 99.0, "max": 100.0}
    assert latencies_ms([]) == {}


def test_a_strip_shows_neighbours_by_their_mean():
    from replay.chart import strip

    assert strip([0.0, 0.0, 1.0, 1.0, 0.5, 0.5], width=3) == "▁█▅"
    assert strip([0.0, 1.2]) == "▁█"
    assert strip([]) == ""


def test_a_histogram_has_a_line_for_each_tenth():
    from replay.chart import histogram

    lines = histogram({"vCPU": [0.95, 1.0, 0.0], "memory": [0.5, 0.5, 0.5]}, width=3)
    assert len(lines) == 11
    assert lines[1] == " 90-100 %     2 ██       0"
    assert lines[5].endswith("3 ███")
    assert lines[10] == "  0- 10 %     1 █        0"


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_progress_rewrites_one_line_on_a_terminal():
    from replay.driver import Outcome
    from replay.progress import Progress

    out = Terminal()
    progress = Progress(out)
    progress(Outcome(length=1000, placed=7))
    progress(Outcome(length=1000, placed=8))
    progress.close()
    assert "\n" not in out.getvalue()
    assert out.getvalue().count("\r") == 3
    assert "8 of 1,000: placed 8, refused 0" in out.getvalue()


def test_progress_is_quiet_elsewhere():
    from replay.driver import Outcome
    from replay.progress import Progress

    out = io.StringIO()
    progress = Progress(out)
    progress(Outcome(length=1000, placed=7))
    progress.close()
    assert out.getvalue() == ""


def test_a_fleet_that_is_not_there_is_the_callers_mistake(tmp_path, capsys):
    from replay.cli import main

    with pytest.raises(SystemExit) as stopped:
        main(["--fleet", str(tmp_path)])
    assert stopped.value.code == 2
    assert "No such file" in capsys.readouterr().err


def test_the_demo_takes_a_part_of_the_shipped_fleet():
    from replay.cli import DEMO_REQUESTS, parser, read_stream

    stream = read_stream(parser().parse_args(["--demo"]))
    assert (len(stream.hosts), stream.length) == (1000, DEMO_REQUESTS)
    assert read_stream(parser().parse_args(["--demo", "--limit", "5"])).length == 5
