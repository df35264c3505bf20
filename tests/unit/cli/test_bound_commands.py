"""Commands that are operations: pages, formats, cells, times, things that are done."""

import csv
import io
import re

import pytest
import yaml

from scheduler_worker.cli import bind
from scheduler_worker.errors import NoValidHost
from scheduler_worker.wording import duration
from tests.support.commands import plain
from tests.support.edges import Edges
from tests.support.rest import Rest
from tests.support.services import host

VALUES = ("-f", "value", "-c", "Host")


@pytest.fixture
def rest():
    found = Rest("east", "west")
    found.world.report(host("more", cluster="east", vcpus=32))
    return found


@pytest.fixture
def ctl(rest, capsys):
    """Runs a command; returns its status, output and error."""
    edges = Edges(rest)
    return lambda *words: edges.run(capsys, *words)


@pytest.fixture
def decided(rest, ctl):
    """Two decisions that are kept: the first placed, the second refused."""
    rest.world.place("i1")
    with pytest.raises(NoValidHost):
        rest.world.place("i2", vcpus=99)
    rest.records.recorder.write()
    return ctl


# Tables


@pytest.mark.parametrize("size", [1, 2, 1000])
def test_a_page_says_where_the_next_one_begins(rest, ctl, monkeypatch, size):
    """``size`` hosts are asked for at a time."""
    monkeypatch.setattr(bind, "PAGE", size)
    rest.world.report(*(host(each, uuid=f"v{each}") for each in ("a1", "b1", "a2", "a3", "a4")))
    asked = ("host", "list", "--limit", "2", "--name", "a*", *VALUES)
    status, out, err = ctl(*asked)
    assert (status, out) == (0, "a1\na2\n")
    marker = re.fullmatch(r"There are more: --marker (\S+)\n", err)[1]
    assert ctl(*asked, "--marker", marker) == (0, "a3\na4\n", "")
    assert ctl("host", "list", *VALUES)[1].count("\n") == 8


@pytest.mark.parametrize("limit", ["0", "-1", "x", "1.5"])
def test_a_limit_is_a_whole_number_above_0(ctl, limit):
    with pytest.raises(SystemExit, match="2"):
        ctl("host", "list", f"--limit={limit}")


def test_every_format_has_the_same_rows(ctl):
    status, out, _ = ctl("host", "list", "-f", "csv", "-c", "Host", "-c", "VCPUs")
    assert status == 0
    rows = [(each["Host"], each["VCPUs"]) for each in csv.DictReader(io.StringIO(out))]
    assert rows == [("host-east", "4"), ("host-west", "4"), ("more", "32")]
    _, out, _ = ctl("host", "list", "-f", "yaml", "--sort-column", "vcpus")
    assert [each["VCPUs"] for each in yaml.safe_load(out)] == [4, 4, 32]
    assert "| host-east |" in ctl("host", "list")[1]


@pytest.mark.parametrize("option", ["-c", "--sort-column"])
def test_a_column_that_is_not_there_is_refused(ctl, option):
    status, _, err = ctl("cluster", "list", option, "hostss")
    assert (status, "There is no column 'hostss'; choose of: Cluster" in err) == (2, True)
    assert ctl("cluster", "show", "east", "-c", "hostss")[0] == 2


def test_cells_are_made_for_people_and_plain_for_programs(decided):
    _, out, _ = decided("cluster", "show", "east")
    assert re.search(r"\| Balance +\| - ", out)
    assert re.search(r"\| Filters +\| ComputeFilter, CoreFilter,", out)
    found = plain(decided, "cluster", "show", "east")
    assert (found["Balance"], found["Filters"][0]) == (None, "ComputeFilter")
    found = plain(decided, "decision", "show", "i2")
    assert plain(decided, "decision", "show", found["id"]) == found
    _, out, _ = decided("decision", "show", "i2")
    assert "none has 99 vCPUs left." in " ".join(out.split())
    assert re.search(r"CoreFilter +\d -> 0", out)
    _, out, _ = decided("decision", "show", "i1", "-c", "ranked", "-f", "value")
    assert "RAMWeigher" in out


NAME = "=a\x1b]0;x\x07\n\u202eZürich"
SHOWN = r"=a\x1b]0;x\x07\n\u202eZürich"


@pytest.fixture
def steering(rest, ctl):
    """A host and a reservation on it, whose name would steer what shows it."""
    rest.world.report(host(NAME, uuid="odd", cluster="east", vcpus=64))
    rest.world.place("i1", vcpus=64)
    rest.records.recorder.write()
    return ctl


@pytest.mark.parametrize(
    "words",
    [
        ("host", "list"),
        ("host", "list", "--name", "=*", *VALUES),
        ("host", "show", "odd"),
        ("reservation", "list"),
        ("decision", "tail", "--no-follow"),
        ("explain", "--vcpus", "1", "--ram", "1", "--why-not", "odd"),
    ],
)
def test_a_name_steers_no_terminal(steering, words):
    status, out, err = steering(*words)
    assert (status, err) == (0, "")
    assert SHOWN in out
    assert (out + err).replace("\n", "").isprintable()


@pytest.mark.parametrize(
    "words",
    [
        ("host", "list", "-f", "json"),
        ("host", "list", "-f", "yaml"),
        ("decision", "tail", "--no-follow", "--json"),
        ("explain", "--vcpus", "1", "--ram", "1", "--why-not", "odd", "--json"),
    ],
)
def test_documents_have_the_name_itself_and_escape_it(steering, words):
    _, out, _ = steering(*words)
    assert out.replace("\n", "").isprintable()
    assert NAME in str(yaml.safe_load(out)) or repr(NAME)[1:-1] in str(yaml.safe_load(out))


def test_a_name_is_no_formula_of_a_spreadsheet_and_no_command_of_a_shell(rest, ctl):
    names = ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1"]
    rest.world.report(*(host(name, uuid=f"u{at}") for at, name in enumerate(names)))
    _, out, _ = ctl("host", "list", "-f", "csv", "-c", "Host", "-c", "VCPUs")
    rows = {row["Host"]: row["VCPUs"] for row in csv.DictReader(io.StringIO(out), escapechar="\\")}
    shown = ["'=1+1", "'+1", "'-1", "'@SUM(A1)", r"'\t=1", r"'\r=1"]
    assert [rows.get(name) for name in shown] == ["4"] * len(shown)
    assert rows["host-east"] == "4"
    rest.world.report(host('$(reboot)`id`\\"', uuid="u9"))
    _, out, _ = ctl("host", "show", "u9", "-f", "shell", "-c", "name")
    assert out == 'name="\\$(reboot)\\`id\\`\\\\\\""\n'


def test_an_error_steers_no_terminal(ctl):
    status, _, err = ctl("explain", "no\x1b[2J\u202e.yaml")
    shown = r"scheduler-workerctl: no\x1b[2J\u202e.yaml: cannot be read"
    assert (status, err) == (2, f"{shown}: No such file or directory\n")


def test_ages_and_what_is_left_are_durations(rest, decided):
    [found] = plain(decided, "reservation", "list")
    assert found["Age"] >= 0
    assert isinstance(found["Expires In"], float)


def test_what_is_not_there_is_named(ctl):
    assert ctl("host", "show", "compute-9") == (
        1, "", "scheduler-workerctl: There is no host 'compute-9'.\n"
    )  # fmt: skip


# Times


@pytest.mark.parametrize("when", ["yesterday", "2x", "2026-13-01", "99999999999d"])
def test_a_time_that_cannot_be_read_is_refused(ctl, when):
    with pytest.raises(SystemExit, match="2"):
        ctl("decision", "list", "--since", when)


def test_times_are_read_as_ages_and_with_their_zone_and_written_in_utc(decided):
    far, past = "2999-01-01T00:00+00:00", "2001-01-01"
    for option, time, count in (
        ("--since", far, 0), ("--until", far, 2), ("--since", past, 2), ("--until", "1h", 2),
        ("--since", "1d", 0),
    ):  # fmt: skip
        assert len(plain(decided, "decision", "list", option, time)) == count, (option, time)
    _, out, _ = decided("decision", "list", "-f", "table", "-c", "Time")
    assert out.count("| 2023-11-14 22:13:20Z |") == 2


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.04, "0.0 s"), (42, "42 s"), (185, "3 min 5 s"), (187_300, "2 d 4 h"), (3600, "1 h 0 min")],
)
def test_durations_have_two_units(seconds, text):
    assert duration(seconds) == text


# What is done to things


def test_what_is_not_there_does_not_keep_the_others_from_it(rest, ctl):
    rest.world.place("i1", requested_destination={"host": "host-east"})
    status, out, err = ctl("reservation", "release", "nobody", "i1", "i1")
    assert (status, out) == (1, "released: i1\n")
    assert "There is no reservation 'nobody'.\n" in err
    assert rest.world.reserved() == {}
