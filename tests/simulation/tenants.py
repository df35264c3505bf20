"""The clients of the workers: tenants that request instances, and the hosts that run them."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from tests.simulation.broker import Broker, Message
from tests.simulation.history import History
from tests.simulation.machine import Machine, Thread
from tests.simulation.plan import Ask, Setting
from tests.simulation.store import BEGINNING_S
from tests.simulation.workers import TOPIC

MEMORY_MB = 1024
"""Of an instance, for each of its vCPUs; hosts have plenty."""
OURS = "scheduler_worker"
RENAMED = "'"
"""The end of the uuid of a node that was created anew."""
REPORT_PATIENCE_S = 5.0
DOUBLED_S = 3.0
"""A message that is sent twice comes at most so late."""


class Racks:
    """The truth about instances and hosts, which reports carry later."""

    def __init__(self, machine: Machine, setting: Setting) -> None:
        self._machine = machine
        self.setting = setting
        self.clusters = dict(setting.hosts)
        self.uuids = {host: f"uuid-{host}" for host in self.clusters}
        self.instances: dict[str, dict[str, int]] = {host: {} for host in self.clusters}
        """Host -> its instances, and how many vCPUs each uses."""
        self.begun: dict[str, set[str]] = {host: set() for host in self.clusters}
        """Host -> the instances that it lists and does not count as use yet."""
        self.others: dict[str, int] = dict.fromkeys(self.clusters, 0)
        """Host -> its use by others."""
        self.used_by_others: set[str] = set()
        """The hosts that others have ever used."""
        self.pinned: dict[str, dict[str, set[int]]] = {host: {} for host in self.clusters}
        """Host -> its instances with CPUs of their own, and which."""
        self.built_s: dict[tuple[str, str], float] = {}
        """When an instance was built on a host, first."""

    def is_built(self, instance: str) -> bool:
        return any(instance in some for some in self.instances.values())

    def is_known(self, instance: str) -> bool:
        return any(built == instance for built, _ in self.built_s)

    def alternate(self, host: str) -> str:
        """Another host of its cluster, if there is one, which is used now without a reservation."""
        others = [each for each, where in self.clusters.items() if where == self.clusters[host]]
        alternate = others[(others.index(host) + 1) % len(others)]
        self.used_by_others.add(alternate)
        return alternate

    def begin(self, host: str, instance: str) -> None:
        """An instance is there, and uses nothing yet."""
        self.begun[host].add(instance)

    def build(self, host: str, instance: str, vcpus: int, *, is_pinned: bool) -> None:
        self.begun[host].discard(instance)
        self.instances[host][instance] = vcpus
        self.built_s.setdefault((instance, host), self._machine.now_s)
        if is_pinned:
            taken = set().union(*self.pinned[host].values())
            free = [cpu for cpu in range(self.setting.vcpus) if cpu not in taken]
            self.pinned[host][instance] = set(free[:vcpus])

    def use(self, host: str, vcpus: int) -> None:
        """What others use of a host grows by so much."""
        self.others[host] = max(0, self.others[host] + vcpus)
        self.used_by_others.add(host)

    def destroy(self, host: str, instance: str) -> None:
        del self.instances[host][instance]
        self.pinned[host].pop(instance, None)

    def rename(self, host: str) -> None:
        self.uuids[host] += RENAMED

    def report(self, host: str, *, lists: bool) -> dict[str, Any]:
        used = self.others[host] + sum(self.instances[host].values())
        report: dict[str, Any] = {
            "uuid": self.uuids[host],
            "host": host,
            "cluster": self.clusters[host],
            "vcpus": self.setting.vcpus,
            "vcpus_used": used,
            "memory_mb": 64 * MEMORY_MB,
            "memory_mb_used": used * MEMORY_MB,
            "local_gb": 100,
            "cpu_allocation_ratio": 1.0,
            "updated_at": BEGINNING_S + self._machine.now_s,
        }
        if self.setting.has_cells:
            report["numa_topology"] = {"cells": [self._cell(host)]}
        if lists:
            built = [{"uuid": uuid, "vm_state": "active"} for uuid in self.instances[host]]
            begun = [{"uuid": uuid, "vm_state": "building"} for uuid in sorted(self.begun[host])]
            report["instances"] = built + begun
        return report

    def _cell(self, host: str) -> dict[str, Any]:
        cpus = list(range(self.setting.vcpus))
        pinned = sorted(set().union(*self.pinned[host].values()))
        return {
            "id": 0,
            "memory": 64 * MEMORY_MB,
            "cpuset": cpus,
            "pcpuset": cpus,
            "pinned_cpus": pinned,
            "cpu_usage": len(pinned),
            "siblings": [[cpu] for cpu in cpus],
        }


class Client:
    """Sends messages as oslo.messaging's clients do, and receives answers."""

    def __init__(self, machine: Machine, broker: Broker, history: History) -> None:
        self._machine = machine
        self._broker = broker
        self._history = history
        self._waiting: dict[str, Thread] = {}
        self._answers: dict[str, Any] = {}
        self._numbers: dict[str, int] = {}
        broker.callers["answers"] = self._receive_cast

    def send(
        self,
        name: str,
        method: str,
        args: Mapping[str, Any],
        *,
        remaining_s: float | None = None,
        namespace: str | None = OURS,
        version: str = "1.0",
        request_id: str = "",
        is_doubled: bool = False,
        is_fanout: bool = False,
        **about: Any,
    ) -> str:
        """Send a cast, or a call if there is patience; the answer is the message's name."""
        number = self._numbers[name] = self._numbers.get(name, 0) + 1
        name = f"{name}.{number}"
        content: dict[str, Any] = {
            "method": method,
            "namespace": namespace,
            "version": version,
            "args": args,
            "_unique_id": name,
            "_context_request_id": request_id or name,
        }
        if remaining_s is not None:
            content |= {"_msg_id": name, "_reply_q": f"reply {name}"}
            self._broker.callers[f"reply {name}"] = lambda body: self._receive(name, body)
        text = msgspec.json.encode(content).decode()
        body = msgspec.json.encode({"oslo.version": "2.0", "oslo.message": text})
        self._history.add(
            "client",
            "sends",
            message=name,
            method=method,
            remaining_s=remaining_s,
            is_doubled=is_doubled,
            **about,
        )

        def publish() -> None:
            if is_fanout:
                self._broker.fanout(f"{TOPIC}_fanout_", Message(name, body))
            else:
                self._broker.publish(TOPIC, Message(name, body, remaining_s))

        self._machine.at(self._machine.random.uniform(0.0, 0.002), publish)
        if is_doubled:
            self._machine.at(self._machine.random.uniform(0.0, DOUBLED_S), publish)
        return name

    def wait(self, name: str, remaining_s: float) -> Any:
        """The answer to a call, or to a request by cast; None after the timeout."""
        if name not in self._answers:
            self._waiting[name] = self._machine.running
            self._machine.park(remaining_s)
        return self._answers.get(name)

    def hang_up(self, name: str) -> None:
        """The sender of the message is gone."""
        self._broker.callers.pop(f"reply {name}", None)

    def _receive(self, name: str, body: bytes) -> None:
        inner = msgspec.json.decode(msgspec.json.decode(body)["oslo.message"])
        if inner["ending"]:
            failure = inner["failure"] and msgspec.json.decode(inner["failure"])
            error = failure and failure["class"]
            self._history.add(
                "client",
                "receives",
                message=name,
                error=error,
                why=failure["message"] if error == "InternalError" else None,
                answer=_hosts(inner["result"]),
            )
            self._take(name, inner["result"] if not failure else Failure(error))

    def _receive_cast(self, answer: dict[str, Any]) -> None:
        error = answer.get("error")
        name = answer["request_id"]
        self._history.add(
            "client",
            "receives",
            request=name,
            error=error and error["type"],
            answer=_hosts(answer.get("selections")),
        )
        self._take(name, answer["selections"] if not error else Failure(error["type"]))

    def _take(self, name: str, answer: Any) -> None:
        self._answers[name] = answer
        if name in self._waiting:
            self._machine.wake(self._waiting.pop(name))


class Failure(str):
    """The name of the error that was answered."""


class Tenant:
    """Wants hosts for some instances, and does something with them."""

    def __init__(self, client: Client, hosts: "Hosts", machine: Machine, deed: Ask) -> None:
        self._client = client
        self._hosts = hosts
        self._racks = hosts.racks
        self._machine = machine
        self._deed = deed

    def run(self) -> None:
        deed = self._deed
        for _ in range(deed.tries):
            name, answer = self._cast() if deed.how == "cast" else self._call()
            if isinstance(answer, list):
                self._machine.sleep(deed.then_after_s)
                self._use(dict(zip(deed.instances, _hosts(answer) or (), strict=True)))
                return
            if answer == "NoValidHost":
                return
        if deed.hangs_up:
            self._client.hang_up(name)

    def _call(self) -> tuple[str, Any]:
        deed = self._deed
        name = self._client.send(
            deed.request,
            "select_destinations",
            {
                "spec_obj": self._spec(),
                "instance_uuids": list(deed.instances),
                "return_objects": deed.how == "call",
            },
            namespace=None,
            version="4.5",
            request_id=deed.request,
            **self._manner(deed.remaining_s),
        )
        return name, self._client.wait(name, deed.remaining_s)

    def _cast(self) -> tuple[str, Any]:
        deed = self._deed
        name = self._client.send(
            deed.request,
            "request_destinations",
            {
                "spec_obj": self._spec(),
                "instance_uuids": list(deed.instances),
                "reply_to": {"topic": "answers"},
                "request_id": deed.request,
                "deadline_s": deed.remaining_s,
                "priority": deed.priority,
            },
            **self._manner(None),
        )
        return name, self._client.wait(deed.request, deed.remaining_s)

    def _manner(self, remaining_s: float | None) -> dict[str, Any]:
        deed = self._deed
        return {
            "remaining_s": remaining_s,
            "is_doubled": deed.is_doubled,
            "request": deed.request,
            "instances": deed.instances,
        }

    def _spec(self) -> dict[str, Any]:
        deed = self._deed
        spec: dict[str, Any] = {
            "flavor": {"vcpus": deed.vcpus, "memory_mb": deed.vcpus * MEMORY_MB},
            "num_instances": len(deed.instances),
        }
        if deed.group:
            spec["instance_group"] = {"policy": "anti-affinity", "members": list(deed.group)}
        if deed.is_pinned:
            cell = {"id": 0, "memory": deed.vcpus * MEMORY_MB, "cpuset": []}
            pinned = {"pcpuset": list(range(deed.vcpus)), "cpu_policy": "dedicated"}
            spec["numa_topology"] = {"cells": [cell | pinned]}
        if deed.cluster is not None:
            spec["scheduler_hints"] = {"cluster": [deed.cluster]}
        return spec

    def _use(self, hosts: Mapping[str, str]) -> None:
        then, uuids = self._deed.then, list(hosts)
        if self._deed.is_rescheduled:
            hosts = {uuid: self._racks.alternate(host) for uuid, host in hosts.items()}
        if then in {"build", "announce", "confirm", "waver"}:
            self._begin(hosts)
            for instance, host in hosts.items():
                if not self._racks.is_built(instance):
                    self._build(instance, host)
        if then in {"confirm", "waver"}:
            self._record("confirm", uuids)
        if then in {"release", "waver"}:
            self._record("release", uuids)
        if then == "waver":
            self._hosts.report(*dict.fromkeys(hosts.values()))

    def _begin(self, hosts: Mapping[str, str]) -> None:
        """Where hosts list instances early, they report as soon as there is one."""
        begun_s = self._racks.setting.begun_s
        if not begun_s:
            return
        for instance, host in hosts.items():
            if not self._racks.is_built(instance):
                self._racks.begin(host, instance)
        self._hosts.report(*dict.fromkeys(hosts.values()))
        self._machine.sleep(begun_s)

    def _record(self, what: str, uuids: Sequence[str]) -> None:
        name = f"{self._deed.request} {what}"
        self._client.send(name, what, {"instance_uuids": uuids}, instances=uuids)

    def _build(self, instance: str, host: str) -> None:
        deed = self._deed
        self._racks.build(host, instance, deed.vcpus, is_pinned=deed.is_pinned)
        if self._deed.then == "announce":
            self._client.send(
                f"{instance} built",
                "update_instance_info",
                {"host_name": host, "instance_info": [{"uuid": instance, "vm_state": "active"}]},
                namespace=None,
                version="4.2",
                is_fanout=True,
            )


class Hosts:
    """They report, and lose instances."""

    def __init__(self, client: Client, racks: Racks) -> None:
        self._client = client
        self.racks = racks

    def report(self, *names: str, lists: bool = True, is_cast: bool = True) -> None:
        reports = [self.racks.report(name, lists=lists) for name in names]
        self._client.send(
            f"{' '.join(names)} reports",
            "update_hosts",
            {"hosts": reports},
            remaining_s=None if is_cast else REPORT_PATIENCE_S,
            used={each["host"]: each["vcpus_used"] for each in reports},
            updated_at=reports[0]["updated_at"],
        )

    def report_all(self) -> None:
        self.report(*self.racks.clusters)

    def remove(self, name: str) -> None:
        """It goes with all that runs on it."""
        for instance in list(self.racks.instances[name]):
            self.racks.destroy(name, instance)
        self.racks.begun[name].clear()
        self.racks.others[name] = 0
        hosts = [{"host": name}]
        self._client.send(f"{name} removed", "remove_hosts", {"hosts": hosts}, hosts=[name])

    def delete(self, name: str) -> None:
        instances = self.racks.instances[name]
        if instances:
            oldest = next(iter(instances))
            self.racks.destroy(name, oldest)
            self._client.send(
                f"{oldest} deleted",
                "delete_instance_info",
                {"host_name": name, "instance_uuid": oldest},
                namespace=None,
                version="4.2",
                is_fanout=True,
                instances=[oldest],
            )


def _hosts(answer: Any) -> list[str] | None:
    """The chosen hosts in an answer of either form."""
    if not isinstance(answer, list):
        return None
    return [
        each["host"] if isinstance(each, dict) else each[0]["nova_object.data"]["service_host"]
        for each in answer
    ]
