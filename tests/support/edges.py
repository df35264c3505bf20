"""Every edge over one world: RPC, the client, REST and the command line, without a server."""

import argparse
import contextlib
import json
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
import pytest

from scheduler_worker.cli.commands import actor
from scheduler_worker.cli.ctl import Ctl
from scheduler_worker.cli.local_client import LocalClient
from scheduler_worker.cli.manage import Manage
from scheduler_worker.cli.program import CommandProgram
from scheduler_worker.client import OperationsClient, SchedulerClient
from scheduler_worker.errors import RemoteFailure, Undeliverable
from scheduler_worker.model.hosts import Hosts, Mask
from scheduler_worker.model.policies import ClusterPolicy
from scheduler_worker.model.rehearsals import RehearsalQuery
from scheduler_worker.model.requests import RequestSpec
from scheduler_worker.model.worker_reports import WorkerFacts, WorkerReport
from scheduler_worker.operations import OPERATIONS
from scheduler_worker.operations.callers import Role
from scheduler_worker.operations.operation import Operation
from scheduler_worker.operations.rights import Access, Rights
from scheduler_worker.ports import Put, Seen, Store, Transaction
from scheduler_worker.rpc import bind
from scheduler_worker.rpc.dispatcher import Dispatcher, Message
from scheduler_worker.scheduling.catalogue import Catalogue, entry
from scheduler_worker.scheduling.plugin import Filter
from scheduler_worker.service.documents.audit import Actor
from scheduler_worker.service.state import presence
from scheduler_worker.waiters import complete
from tests.support.rest import Rest
from tests.support.tuners import BALLOON, Scenario, tuned

AnyOperation = Operation[Any, Any]
JSON = {"Content-Type": "application/json"}
PACKING = ClusterPolicy(id="packing", name="packing", version=1)
ROLES: Mapping[str, Role] = {"admin": "administrator", "auditor": "reader"}


FLAVOR = {"vcpus": 1, "memory_mb": 1024}
GIVEN: dict[str, Any] = {
    "name": "balloon",
    "cluster": "east",
    "worker": "w1",
    "id": "one",
    "spec_obj": {"flavor": FLAVOR},
    "flavors": [FLAVOR],
    "mode": "dry_run",
    "policy": {"id": "p", "name": "p", "version": 1},
    "is_enabled": True,
}
"""Parameters that are right, by name."""
SPECIAL: dict[str, dict[str, Any]] = {
    "get_cluster": {"name": "east"},
    "get_attachment": {"name": "east"},
    "list_cluster_history": {"name": "east"},
    "attach_cluster": {"name": "east", "policy": "packing"},
    "get_host": {"name": "host-east"},
    "drain_worker": {"worker": "w1", "last": True},
    "dismiss_worker": {"worker": "w0"},
    "get_tuned_host": {"name": "host-east"},
    "capacity": {"flavors": [FLAVOR], "spec_obj": {}},
    "get_policy": {"id": "packing"},
    "put_policy": {"id": "packing", "name": "packed"},
    "remove_policy": {"id": "packing"},
    "check_policy": {"id": "packing", "name": "other"},
    "list_policy_history": {"id": "packing"},
    "create_policy": {"name": "other"},
    "get_rehearsal": {"id": "r0"},
    "remove_rehearsal": {"id": "r0"},
    "begin_rehearsal": {},
}
"""Those of operations where they mean something else."""


def right(operation: AnyOperation, unit: str, text: str) -> dict[str, Any]:
    """Right parameters of an operation, with a unit that can be switched and a tuning policy."""
    if operation.name in SPECIAL:
        return SPECIAL[operation.name]
    known = {**GIVEN, "text": text}
    if operation.name in {"get_unit", "switch_unit", "remove_unit"}:
        known["id"] = unit
    return {each.name: known[each.name] for each in operation.fields if each.required}


class FromFile(Filter):
    """Needs to be enabled, as what comes from a file does."""

    needs_enabling = True

    def passes(self, hosts: Hosts, spec: RequestSpec) -> Mask:
        raise NotImplementedError


UNIT = entry("FromFile", FromFile)


def filled() -> Rest:
    """Two clusters, and one at least of all that operations are about."""
    rest = Rest("east", "west")
    rest.office.use(Catalogue([*rest.world.pipelines.catalogue, UNIT]))
    rest.administration.add(PACKING, Actor("setup"))
    rest.administration.register_units()
    rest.world.place("one", requested_destination={"host": "host-east"})
    rest.records.recorder.write()
    rest.tuning.set("balloon", BALLOON)
    rest.rehearsals.begin(RehearsalQuery(since_s=0.0, until_s=1.0), None, (), "setup")
    tuned(rest.world.state, "east", "uuid-host-east", rest.clock.time_s())
    lose_worker(rest.world.state, "w0")
    return rest


def lose_worker(state: Store, name: str) -> None:
    """A worker that reported an hour ago, and was killed then."""
    facts = WorkerFacts(name=name, version="1", topic="scheduler")
    now_s = state.changes(presence.REPORTS_SCOPE, Seen()).now_s
    report = WorkerReport(facts=facts, at_s=now_s - 3600)
    put = Put(f"w:{name}", msgspec.json.encode(report))
    state.write(presence.REPORTS_SCOPE, [Transaction([put])])


class OneWorker:
    """A worker without a server."""

    facts = WorkerFacts(name="w1", version="1", topic="scheduler")

    def __init__(self, tuner: Any) -> None:
        self.tuner = tuner
        self.calls: list[str] = []

    def status(self) -> Mapping[str, Any]:
        return {
            "uptime_s": 1.0, "missing": [], "holds": {"leases": ["east"]}, "feed_lag_s": {},
            "bus": {"running": 0, "waiting": 0, "queue_delay_s": None, "slots": 1}, "clusters": {},
        }  # fmt: skip

    def drain(self, *, last: bool) -> None:
        self.calls.append("drain")

    def resume(self) -> None:
        self.calls.append("resume")


class Edges:
    """The edges of one world."""

    def __init__(self, rest: Rest, role: Role | None = "administrator") -> None:
        self.rest = rest
        scenario = Scenario()
        scenario.agents.report()
        self.worker = OneWorker(scenario.tuner)
        services = rest.services._replace(api=None, worker=self.worker)
        access = Access(Rights(), rest.administration.audit)
        self.dispatcher = Dispatcher([bind.endpoint(OPERATIONS, services, access, role, ROLES)])
        bus: Any = self
        self.client_of_it = SchedulerClient(bus)

    # As a bus

    def client(self, topic: str, *, server: str | None = None, **target: Any) -> Any:
        return _Client(self.dispatcher, server, target)

    # The edges

    def rpc(self, operation: AnyOperation, given: Mapping[str, Any], **context: Any) -> Any:
        """The plain answer; raises RemoteFailure."""
        return self.client("scheduler", namespace="scheduler_worker", version="1.5").call(
            operation.name, context, **given
        )

    def http(
        self, operation: AnyOperation, given: Mapping[str, Any], *, user: str = "admin@internal",
        headers: Mapping[str, str] | None = None,
    ) -> Any:  # fmt: skip
        path = f"/v1{operation.path}".format(**given)
        rest = {
            name: value for name, value in given.items() if f"{{{name}}}" not in str(operation.path)
        }
        body, query = b"", {}
        if operation.method in {"POST", "PUT"}:
            body = msgspec.json.encode(rest)
        else:
            query = {name: value for name, value in rest.items() if value is not None}
        return self.rest.request(
            operation.method, path, body, user=user, query_string=query,
            headers={**(JSON if body else {}), **(headers or {})},
        )  # fmt: skip

    @contextlib.contextmanager
    def _connected(
        self, program: CommandProgram, _: object, arguments: argparse.Namespace
    ) -> Iterator[OperationsClient]:
        if isinstance(program, Ctl):
            yield self.client_of_it
        else:
            who = actor(getattr(arguments, "author", None))
            yield LocalClient(self.rest.services, who)

    def command(self, *words: str, of: type[CommandProgram] = Ctl) -> int:
        """The exit status of a command of a program, which prints."""
        with pytest.MonkeyPatch.context() as patch:
            for program in (Ctl, Manage):
                patch.setattr(program, "connected", lambda *asked: self._connected(*asked))
            return of.main(list(words))

    def run(self, capsys: Any, *words: str, of: type[CommandProgram] = Ctl) -> tuple[int, str, str]:
        """The exit status of a command, its output and what it says is wrong."""
        return self.command(*words, of=of), *capsys.readouterr()


class _Client:
    """One interface on one topic."""

    def __init__(
        self, dispatcher: Dispatcher, server: str | None, target: Mapping[str, Any]
    ) -> None:
        self._dispatcher, self._server, self._target = dispatcher, server, target

    def call(self, method: str, context: Mapping[str, Any], /, **arguments: Any) -> Any:
        if self._server not in {None, OneWorker.facts.name}:
            raise Undeliverable(f"Nobody listens to scheduler.{self._server}")
        message = Message(
            method=method,
            namespace=self._target["namespace"],
            version=self._target["version"],
            args=json.loads(json.dumps(arguments)),
            context=context,
            is_call=True,
        )
        found = complete(self._dispatcher.serve(message))
        if found.failure is not None:
            failure = found.failure
            raise RemoteFailure(failure.module, failure.class_name, failure.message)
        return json.loads(json.dumps(found.value))
