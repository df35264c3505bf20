"""What commands say of what they do, on a terminal and elsewhere."""

import contextlib
import io

import pytest

from scheduler_worker.cli.progress import Activity, ProgressReport, awaited, counted, doing
from tests.support.services import host


class Terminal(io.StringIO):
    def isatty(self):
        return True


class Time:
    now_s = 100.0

    def __call__(self):
        return self.now_s


@pytest.fixture
def time():
    return Time()


@pytest.fixture
def progress(time):
    return ProgressReport(time)


def test_a_line_comes_every_some_seconds(progress, time, capsys):
    with progress.doing("reading") as activity:
        for now_s in (104, 105, 109, 110):
            time.now_s = now_s
            activity.far(int(now_s) - 100, 20, " pages")
            progress.look()
    said = "reading: 5 of 20 pages, 15 s left\nreading: 10 of 20 pages, 10 s left\n"
    assert capsys.readouterr().err == said


def test_what_begins_is_said_at_once_if_it_is_wanted(progress, capsys):
    with progress.doing("reading", at_once=True):
        assert capsys.readouterr().err == "reading\n"


def test_what_is_short_is_not_said(progress, time, capsys):
    for _ in range(100):
        with progress.doing("waiting"):
            time.now_s += 1
            progress.look()
    time.now_s += 100
    progress.look()
    assert capsys.readouterr().err == ""


def test_of_what_is_not_counted_the_time_is_said(progress, time, capsys):
    with progress.doing("waiting"):
        time.now_s += 65
        progress.look()
    assert capsys.readouterr().err == "waiting: 1 min 5 s\n"


def test_the_outermost_is_said(progress, time, capsys):
    with progress.doing("reading all") as all_pages, progress.doing("waiting for a page"):
        all_pages.far(3)
        time.now_s += 5
        progress.look()
    assert capsys.readouterr().err == "reading all: 3\n"


def test_a_terminal_has_one_line_that_goes(progress, time):
    with (
        contextlib.redirect_stderr(Terminal()) as terminal,
        progress.doing("reading", at_once=True) as activity,
    ):
        activity.far(1_000)
        time.now_s += 0.5
        progress.look()
    assert terminal.getvalue() == "reading\r       \rreading: 1,000\r              \r"


def test_ctrl_c_says_what_it_ended_and_how_far_it_was(progress, capsys):
    with pytest.raises(KeyboardInterrupt), progress.doing("reading") as activity:
        activity.far(7, unit=" pages")
        with progress.doing("waiting"):
            raise KeyboardInterrupt
    assert capsys.readouterr().err == "Ctrl-C ended it. reading: 7 pages\n"


def test_items_are_counted_and_awaited(progress, time, capsys, monkeypatch):
    with progress.shown():
        for _ in counted("abc", "taking", 3):
            time.now_s += 5
            progress.look()
        for _ in awaited("abc", "the next one"):
            time.now_s += 5
            progress.look()  # what is done with it is no part of waiting for it
    assert [line.partition(",")[0] for line in capsys.readouterr().err.splitlines()] == [
        f"taking: {number} of 3" for number in (1, 2, 3)
    ]


def test_without_a_program_nothing_is_said(capsys):
    with doing("reading"):
        pass
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (["cluster", "list"], "reading with list_clusters"),
        (["cluster", "list"], "waiting for the workers' answer to list_clusters"),
        (["balance", "show"], "reading the answers to list_balancing"),
        (["explain", "--vcpus", "1", "--ram", "1"], "waiting for the workers' answer to explain"),
        (["capacity", "--vcpus", "1", "--ram", "1"], "waiting for the workers' answer to capacity"),
    ],
)
def test_a_command_that_asks_says_for_what_it_waits(ctl, client, monkeypatch, words, what):
    client.update_hosts([host("a")])
    said = []
    begun = Activity.__init__

    def watched(activity, text, clock):
        said.append(text)
        begun(activity, text, clock)

    monkeypatch.setattr(Activity, "__init__", watched)
    assert ctl(*words)[0] == 0
    assert what in said
