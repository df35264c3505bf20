"""The page Health: what is wrong, and workers as they report."""

from typing import Any

import msgspec
import pytest
from playwright.sync_api import expect

import scheduler_worker
from scheduler_worker import events
from scheduler_worker.errors import NoValidHost
from scheduler_worker.model.worker_reports import (
    ClusterReport,
    Holds,
    Lately,
    LockTimes,
    PartReport,
    Spread,
    WorkerFacts,
    WorkerReport,
    bucket_of,
)
from scheduler_worker.ports import Put, Seen, Transaction
from scheduler_worker.service.state import presence
from tests.support.consoles import READER, rows
from tests.support.patience import eventually
from tests.support.services import request

DROPPED = events.DECISION_RECORDS.troubles["dropped"].text
VERSION = scheduler_worker.__version__
OLDER = f"{VERSION}-rc1"


def add(api: Any, name: str, facts: dict[str, Any] | None = None, **report: Any) -> None:
    """Another worker, that reports this once."""
    ours = api.worker.facts
    plain = {"name": name, "version": ours.version, "topic": ours.topic}
    known = WorkerFacts(**plain | (facts or {}))
    presence.Presence(api.worker.state, known, lambda: WorkerReport(**report)).renew()


@pytest.fixture
def reported(api):
    """The worker inside has reported after the first request, which it has placed."""
    eventually(lambda: any(each.report for each in api.services.workers.read()))  # by its thread
    api.worker.vitals.presence.renew()
    return api


@pytest.fixture
def sick(reported):
    """Beside the worker inside there are others, each with a problem."""
    add(
        reported,
        "w2",
        {"version": OLDER},
        uptime_s=7200.0,
        slots=8,
        running=3,
        waiting=2,
        waiting_for_pending=4,
        lag_s=7.5,
        holds=Holds(leases=("east",), feed=True, balancing=("east", "west")),
        clusters=(
            ClusterReport(
                name="east", in_line=3, oldest_s=0.4, held_s=0.02,
                times=LockTimes(Spread({bucket_of(0.01): 1, bucket_of(2.0): 1})),
            ),
        ),
        feed={"cell1": PartReport(lag_s=300.0, hosts=40)},
        lately=Lately(over_s=295.0, placed=2, failed=1, errors={DROPPED: 12}),
    )  # fmt: skip
    add(reported, "w3", {"is_drained": True}, missing=("the bus cannot reach RabbitMQ: refused",))
    return reported


def test_all_is_well_with_one_worker_that_serves(reported, console):
    page = console.entered()
    page.get_by_role("navigation").get_by_role("link").last.click()
    expect(page.get_by_role("heading", name="Health")).to_be_visible()
    expect(page.locator("#summary")).to_have_text("All is well. 1 worker, 1 serving.")
    expect(page.locator("#findings li")).to_have_count(0)
    ours = rows(page, "As each reported last")[reported.worker.facts.name]
    assert ours[:2] == ["serving", reported.worker.facts.version]
    assert rows(page, "Queues and locks")["east"][3] == "1"
    assert rows(page, "The last ")["All"][:3] == ["1", "0", "0"]
    expect(page.locator("#errors p")).to_contain_text("None in the last")


def test_what_is_wrong_comes_first_with_how_to_mend_it(sick, console):
    page = console.entered("/health", user=READER)
    expect(page.locator("#summary")).to_have_text("6 things to fix. 3 workers, 2 serving.")
    findings = page.locator("#findings li")
    assert [each.split("\n")[0] for each in findings.all_inner_texts()] == [
        "failed worker w3: the bus cannot reach RabbitMQ: refused",
        "failed the cell cell1: not all of its 40 hosts have been known for 300 s",
        "warning the workers: drained workers take no requests: w3",
        f"warning the workers: versions {VERSION}, {OLDER} are in use at the same time",
        "warning the topic's queue: requests wait for up to 8 s until a worker gets them",
        "warning worker w2: records of decisions dropped: 12 in the last five minutes",
    ]
    expect(findings.first).to_contain_text("To fix it: See [DEFAULT] transport_url")
    found = rows(page, "As each reported last")
    assert found["w2"][:2] == ["serving", OLDER]
    assert found["w2"][4:] == ["7.5 s", "3 of 8 slots", "2, 4 for reservations",
        "the lock of east; the feed; balancing of east, west"]  # fmt: skip
    assert found["w3"][0] == "drained"
    east = rows(page, "Queues and locks")["east"]
    assert east[:2] == ["3", "400 ms"]
    assert east[4:] == ["w2, for 20 ms", "3", "10 ms", "2.5 s", *east[-2:]]
    assert rows(page, "Read from Nova's databases") == {"cell1": ["up", "40", "5 min"]}
    assert rows(page, "In the last ")[DROPPED] == ["12", "w2 12"]
    console.check("health")


@pytest.mark.deep
def test_the_page_follows_what_the_workers_report(reported, console):
    page = console.entered("/health")
    summary = page.locator("#summary")
    expect(summary).to_contain_text("All is well")
    with pytest.raises(NoValidHost):
        reported.services.scheduler.select(request("two", vcpus=99))
    reported.worker.vitals.presence.renew()
    expect(page.locator("#requests tbody tr").first).to_contain_text("All11")
    reported.worker.vitals.presence.set_drained(True)
    expect(summary).to_have_text("2 things to fix. 1 worker, 0 serving.")
    expect(page.locator("#findings")).to_contain_text("scheduler-workerctl worker resume")
    reported.worker.vitals.presence.set_drained(False)
    expect(summary).to_have_text("All is well. 1 worker, 1 serving.")


@pytest.mark.deep
def test_a_worker_without_news_is_shown_as_such(reported, console):
    add(reported, "w2")
    now_s = reported.worker.state.changes(presence.REPORTS_SCOPE, Seen()).now_s
    old = msgspec.json.encode(WorkerReport(at_s=now_s - 2000.0))
    put = Put("w:w2", old, now_s + 600.0)
    reported.worker.state.write(presence.REPORTS_SCOPE, [Transaction([put])])
    page = console.entered("/health")
    expect(page.locator("#workers")).to_contain_text("lost")
    assert rows(page, "As each reported last")["w2"][3].startswith("no news for 3")
    expect(page.locator("#findings li")).to_contain_text("it has reported nothing for 33 min")


@pytest.mark.deep
def test_no_worker_is_told(api, console):
    api.worker.vitals.presence.stop()
    page = console.entered("/health")
    expect(page.locator("#summary")).to_have_text("1 thing to fix. 0 workers, 0 serving.")
    expect(page.locator("#findings")).to_contain_text("no request is served")
    expect(page.locator("#workers")).to_contain_text("There is none.")
