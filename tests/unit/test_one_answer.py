"""Each operation on what all processes share, in a worker and in a process of the REST API."""

import contextlib
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from msgspec import structs

from scheduler_worker import codec, conf
from scheduler_worker.compose import engines
from scheduler_worker.compose.parts import Parts
from scheduler_worker.errors import ConfigError, NoValidHost, SchedulerWorkerError
from scheduler_worker.model.worker_reports import WorkerFacts, WorkerReport
from scheduler_worker.operations import OPERATIONS
from scheduler_worker.operations.decisions import get_decision, list_decisions
from scheduler_worker.operations.forms import parsed
from scheduler_worker.operations.operation import Call
from scheduler_worker.operations.policies import create_policy
from scheduler_worker.operations.requests import capacity, explain
from scheduler_worker.operations.rights import Access, Rights
from scheduler_worker.ports import Put, Transaction
from scheduler_worker.service.documents.audit import Actor
from scheduler_worker.service.state import presence
from tests.support.clock import ManualClock
from tests.support.edges import FLAVOR, PACKING, AnyOperation, lose_worker, right
from tests.support.provider_feeds import FakePlacement
from tests.support.services import ADMINISTRATOR, host, request
from tests.support.tuners import BALLOON, tuned
from tests.support.workers import load_config

NOWHERE = "mysql+pymysql://nova:nova@127.0.0.1:1/nova"
FLEET = [each for each in OPERATIONS if each.home == "fleet" and each.path]
DISK = {**FLAVOR, "root_gb": 10}


class Processes:
    """A worker and an API process on one state, whose hosts come from a Nova that is away."""

    def __init__(self, path: Any, placement: FakePlacement) -> None:
        config = load_config(
            path / "both.conf",
            DEFAULT={"transport_url": "local://both/"},
            state={"url": "memory://"},
            nova_feed={"enabled": True},
            api_database={"connection": NOWHERE},
            placement={"auth_type": "none", "endpoint_override": "http://127.0.0.1:1"},
        )
        self.placement = placement
        settings, self.clock = conf.settings(config), ManualClock()
        self.worker = Parts(settings, config, clock=self.clock)
        self.api = Parts(settings, config, clock=self.clock, only_reads=True)
        self.before = Parts(structs.replace(settings, nova_feed=None), clock=self.clock)
        """A worker that has decided, for which nobody was asked."""
        for parts in (self.api, self.before):
            vars(parts).update(state=self.worker.state, _decision_log=self.worker._decision_log)

    def close(self) -> None:
        self.worker.close()
        self.api.close()

    def read_what_is_shared(self) -> None:
        for parts in (self.worker, self.api):
            assert parts.services
            if parts.sharing is not None:
                parts.sharing.run_due()

    def read_nova(self) -> None:
        """As if a feeder had read everything."""
        assert self.worker.feeder is not None
        with self.worker.feeder.records.lock:
            self.worker.feeder._take_lead()
            self.worker.feeder._write(is_complete=True)


@pytest.fixture
def placement(monkeypatch) -> FakePlacement:
    placement = FakePlacement("a", "b")
    monkeypatch.setattr(engines, "open_placement_reader", lambda *_, **__: placement)
    return placement


@pytest.fixture
def processes(tmp_path, placement) -> Iterator[Processes]:
    with contextlib.closing(Processes(tmp_path, placement)) as made:
        yield made


def fill(processes: Processes) -> None:
    """Two clusters, a decision, a lost worker, a tuned host, and a feed that has read all."""
    processes.read_nova()
    worker, clock = processes.before, processes.clock
    worker.inventory.update_hosts(
        codec.decode_host_reports(
            [host("host-east", cluster="east"), host("host-west", cluster="west")]
        )
    )
    worker.scheduler.answered(worker.scheduler.select(request("one")))
    with pytest.raises(NoValidHost):
        worker.scheduler.select(request("two", vcpus=999))
    assert worker.recorder is not None
    worker.recorder.write()
    worker.tuning.set("balloon", BALLOON)
    worker.administration.add(PACKING, Actor("setup"))
    tuned(worker.state, "east", "uuid-host-east", clock.time_s())
    lose_worker(worker.state, "w0")
    facts = WorkerFacts(name="w1", version="1", topic="scheduler")
    report = msgspec.json.encode(WorkerReport(facts=facts, at_s=clock.time_s()))
    worker.state.write(presence.REPORTS_SCOPE, [Transaction([Put("w:w1", report)])])
    processes.read_what_is_shared()


def answer(parts: Parts, operation: AnyOperation, given: dict[str, Any]) -> Any:
    """What it answers, in plain values, or the error that it raises."""
    access = Access(Rights(), parts.audit)
    call = Call(operation, parts.services, ADMINISTRATOR, access)
    call.allow()
    try:
        return msgspec.to_builtins(operation.serve(call, parsed(operation, given)))
    except SchedulerWorkerError as error:
        return type(error), str(error)


def given_to(parts: Parts, operation: AnyOperation) -> dict[str, Any]:
    if operation is get_decision:
        [newest, *_] = answer(parts, list_decisions, {})["items"]
        return {"id": newest["id"]}
    return right(operation, unit="", text=BALLOON)


@pytest.mark.parametrize("operation", FLEET, ids=lambda each: each.name)
def test_an_operation_answers_alike_in_every_process(tmp_path, placement, operation):
    found = []
    with contextlib.ExitStack() as stack:
        here = stack.enter_context(contextlib.closing(Processes(tmp_path, placement)))
        fill(here)
        there = here
        if operation.method != "GET":  # it may change what the other is asked about
            there = stack.enter_context(contextlib.closing(Processes(tmp_path, placement)))
            fill(there)
        for parts in (here.worker, there.api):
            found.append(answer(parts, operation, given_to(parts, operation)))
    if operation is create_policy:
        assert {len(each.pop("id")) for each in found} == {36}
    assert found[0] == found[1]


def asked_of(processes: Processes, operation: AnyOperation, **given: Any) -> list[Any]:
    return [answer(parts, operation, given) for parts in (processes.worker, processes.api)]


def test_an_unread_feed_keeps_every_process_from_explaining(processes):
    processes.read_what_is_shared()
    by_worker, by_api = asked_of(processes, explain, spec_obj={"flavor": FLAVOR})
    assert by_worker == by_api
    assert "Nova's databases have not been read yet" in by_api["reason"]


def test_what_providers_share_is_counted_nowhere(processes):
    processes.placement.add_child("nfs", "nfs", DISK_GB=100)
    processes.placement.shares = {"nfs"}
    fill(processes)
    by_worker, by_api = asked_of(processes, capacity, flavors=[DISK])
    assert by_worker == by_api
    problems = {each["problem"] for each in by_api["flavors"][0]["clusters"]}
    assert all("it takes what providers share" in (problem or "") for problem in problems)


def test_an_api_process_without_the_library_says_what_it_did_not_ask(
    processes, monkeypatch, caplog
):
    def missing(*_: object, **__: object) -> None:
        raise ConfigError("[placement] needs the extra nova")

    monkeypatch.setattr(engines, "open_placement_reader", missing)
    with pytest.raises(ConfigError):
        assert processes.worker.services
    explained = answer(processes.api, explain, {"spec_obj": {"flavor": FLAVOR}})
    counted = answer(processes.api, capacity, {"flavors": [FLAVOR]})
    assert (explained["not_asked"], counted["not_asked"]) == (["placement"], ["placement"])
    assert "Answers leave out what providers share: [placement] needs" in caplog.text
