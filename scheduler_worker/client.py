"""A client of the workers: each RPC method as a typed Python call.

::

    with SchedulerClient.connect("rabbit://user:secret@broker:5672/") as scheduler:
        [[chosen, *alternates]] = scheduler.select_destinations(spec, ["6f0b..."])

Errors of the worker are raised here as the same classes of :mod:`scheduler_worker.errors`.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any

from scheduler_worker import conf as configuration
from scheduler_worker.errors import RemoteFailure
from scheduler_worker.model.decisions import Selection
from scheduler_worker.rpc import codec, nova, worker
from scheduler_worker.rpc.transport import Bus, Client
from scheduler_worker.rpc.wire_errors import from_wire

Plain = dict[str, Any]

_VERSIONS = ("1.0", "1.1", "1.2", "1.3", "1.4")
"""Of our own interface. Each method is called with the one that introduced it: there may be older
workers."""


class SchedulerClient:
    """Calls and casts to the workers of one topic. Safe to share between threads."""

    def __init__(
        self,
        bus: Bus,
        *,
        topic: str = "scheduler",
        timeout_s: float = 60.0,
        call_monitor_timeout_s: int | None = None,
    ) -> None:
        self._bus = bus
        self._owns_bus = False

        def caller(namespace: str | None, version: str) -> Client:
            return bus.client(
                topic,
                namespace=namespace,
                version=version,
                timeout_s=timeout_s,
                call_monitor_timeout_s=call_monitor_timeout_s,
            )

        self._nova = caller(None, nova.VERSION)
        self._ours = {each: caller(worker.NAMESPACE, each) for each in _VERSIONS}

        def caller_of_one(name: str) -> Client:
            return bus.client(
                topic,
                server=name,
                namespace=worker.NAMESPACE,
                version="1.4",
                timeout_s=timeout_s,
            )

        self._caller_of_one = caller_of_one
        self._base = caller("baseapi", nova.BASEAPI_VERSION)
        self._fanout = bus.client(topic, version="4.2", fanout=True)

    @classmethod
    def connect(
        cls,
        url: str | None = None,
        *,
        config_file: str | Path | None = None,
        topic: str = "scheduler",
        exchange: str = "nova",
        timeout_s: float = 60.0,
        call_monitor_timeout_s: int | None = None,
    ) -> SchedulerClient:
        """A client with a bus of its own, which :meth:`close` closes.

        ``config_file`` is an oslo.config file with what a URL cannot express: TLS, and the kind of
        queues, which must be that of the workers (``[oslo_messaging_rabbit]``). Its ``[DEFAULT]
        transport_url`` applies where ``url`` is not given.
        """
        files = [f"--config-file={config_file}"] if config_file else []
        bus = Bus(configuration.load(files), url=url, exchange=exchange)
        client = cls(
            bus, topic=topic, timeout_s=timeout_s, call_monitor_timeout_s=call_monitor_timeout_s
        )
        client._owns_bus = True
        return client

    def close(self) -> None:
        """Close the bus, if it is this client's own."""
        if self._owns_bus:
            self._bus.close()

    def __enter__(self) -> SchedulerClient:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    # Placing

    def select_destinations(
        self,
        spec: Mapping[str, Any],
        instance_uuids: Sequence[str] | None = None,
        *,
        return_alternates: bool = False,
        context: Plain | None = None,
    ) -> list[list[Selection]]:
        """Choose hosts; returns for each instance the chosen host, then its alternates.

        ``spec`` has the fields of Nova's RequestSpec, as a plain dict or an object primitive.

        Raises:
            NoValidHost, RequestError, ClusterLockTimeout, StateUnavailable: see their docstrings.
        """
        answer = self._call(
            self._nova,
            "select_destinations",
            context,
            spec_obj=dict(spec),
            instance_uuids=list(instance_uuids) if instance_uuids else None,
            return_objects=True,
            return_alternates=return_alternates,
        )
        return [[codec.decode_selection(each) for each in some] for some in answer]

    def request_destinations(
        self,
        spec: Mapping[str, Any],
        instance_uuids: Sequence[str] | None = None,
        *,
        reply_to: Plain,
        request_id: str | None = None,
        return_alternates: bool = False,
        deadline_s: float | None = None,
        context: Plain | None = None,
    ) -> str:
        """Cast a request whose answer is cast to ``reply_to``; returns the request id."""
        request_id = request_id or f"req-{uuid.uuid4()}"
        self._ours["1.0"].cast(
            "request_destinations",
            context or {},
            request_id=request_id,
            spec_obj=dict(spec),
            instance_uuids=list(instance_uuids) if instance_uuids else None,
            return_alternates=return_alternates,
            reply_to=reply_to,
            deadline_s=deadline_s,
        )
        return request_id

    def explain(
        self,
        spec: Mapping[str, Any],
        instance_uuids: Sequence[str] | None = None,
        *,
        hosts: Sequence[str] | None = None,
        limit: int | None = None,
    ) -> Plain:
        """Return why each host would be chosen or not; reserves nothing."""
        uuids = list(instance_uuids) if instance_uuids else None
        answer: Plain = self._call_ours(
            "explain", spec_obj=dict(spec), instance_uuids=uuids, hosts=hosts, limit=limit
        )
        return answer

    def explain_request(self, request: Mapping[str, Any], *, limit: int | None = None) -> Plain:
        """Like :meth:`explain`, for a request as people write it: ``docs/rpc.md``, section 3."""
        answer: Plain = self._call_ours("explain", "1.4", request=dict(request), limit=limit)
        return answer

    def capacity(
        self, flavors: Sequence[Mapping[str, Any]], *, setting: Mapping[str, Any] | None = None
    ) -> list[Plain]:
        """How many more instances of each flavor fit, by cluster and zone; reserves nothing.

        Raises RequestError, which names the field, such as ``flavors[2].ram``.
        """
        answer: list[Plain] = self._call_ours(
            "capacity",
            "1.4",
            flavors=[dict(each) for each in flavors],
            setting=dict(setting) if setting else None,
        )
        return answer

    def confirm(self, instance_uuids: Sequence[str]) -> int:
        """Confirm that instances exist; returns how many reservations were known."""
        return int(self._call_ours("confirm", instance_uuids=list(instance_uuids)))

    def release(self, instance_uuids: Sequence[str]) -> int:
        """Give back what was reserved for instances; returns how many reservations were known."""
        return int(self._call_ours("release", instance_uuids=list(instance_uuids)))

    # Hosts

    def update_hosts(self, hosts: Sequence[Mapping[str, Any]]) -> dict[str, int]:
        """Report hosts; returns the version of each changed cluster."""
        answer: dict[str, int] = self._call_ours("update_hosts", hosts=list(hosts))
        return answer

    def remove_hosts(self, hosts: Iterable[tuple[str, str | None]]) -> dict[str, int]:
        """Remove (host, nodename) pairs; returns the version of each changed cluster."""
        pairs = [{"host": host, "nodename": nodename} for host, nodename in hosts]
        answer: dict[str, int] = self._call_ours("remove_hosts", hosts=pairs)
        return answer

    # Announcements: fanout casts, as Nova's services send them

    def update_aggregates(self, aggregates: Sequence[Mapping[str, Any]]) -> None:
        """Replace aggregates by id, in every worker."""
        self._fanout.cast("update_aggregates", {}, aggregates=list(aggregates))

    def delete_aggregate(self, aggregate: Mapping[str, Any]) -> None:
        """Remove an aggregate, in every worker."""
        self._fanout.cast("delete_aggregate", {}, aggregate=dict(aggregate))

    def update_instance_info(self, host: str, instances: Sequence[Mapping[str, Any]]) -> None:
        """Announce instances on a host."""
        self._fanout.cast("update_instance_info", {}, host_name=host, instance_info=list(instances))

    def delete_instance_info(self, host: str, instance_uuid: str) -> None:
        """Announce that an instance left a host."""
        self._fanout.cast("delete_instance_info", {}, host_name=host, instance_uuid=instance_uuid)

    def sync_instance_info(self, host: str, instance_uuids: Sequence[str]) -> None:
        """Announce that these instances, and no others, are on a host."""
        self._fanout.cast(
            "sync_instance_info", {}, host_name=host, instance_uuids=list(instance_uuids)
        )

    # Listing

    def list_hosts(
        self,
        cluster: str | None = None,
        marker: str | None = None,
        limit: int | None = None,
        *,
        host: str | None = None,
        state: str | None = None,
    ) -> Plain:
        """A page: ``hosts``, ``next`` (the marker of the next page, or None), ``version``.

        ``host`` is a name, node name or uuid; ``state`` is up, down or disabled.
        """
        return self._page("list_hosts", cluster, marker, limit, host=host, state=state)

    def list_reservations(
        self,
        cluster: str | None = None,
        marker: str | None = None,
        limit: int | None = None,
        *,
        host: str | None = None,
        instance: str | None = None,
    ) -> Plain:
        """A page: ``reservations``, ``next``, ``version``; of a host, of an instance by uuid."""
        return self._page("list_reservations", cluster, marker, limit, host=host, instance=instance)

    def _page(
        self,
        method: str,
        cluster: str | None,
        marker: str | None,
        limit: int | None,
        **filters: str | None,
    ) -> Plain:
        """Filters are of a later version: without one an older worker can answer."""
        given = {name: value for name, value in filters.items() if value is not None}
        answer: Plain = self._call_ours(
            method,
            "1.4" if given else "1.0",
            cluster=cluster,
            marker=marker,
            limit=limit,
            **given,
        )
        return answer

    def list_clusters(self, marker: str | None = None, limit: int | None = None) -> Plain:
        """A page: ``clusters``, ``next``."""
        answer: Plain = self._call_ours("list_clusters", marker=marker, limit=limit)
        return answer

    def every_cluster(self) -> Iterator[Plain]:
        """All clusters, page by page."""
        yield from pages(self.list_clusters, "clusters")

    def every_host(self, cluster: str | None = None) -> Iterator[Plain]:
        """All hosts, page by page."""
        yield from pages(partial(self.list_hosts, cluster), "hosts")

    def every_reservation(self, cluster: str | None = None) -> Iterator[Plain]:
        """All live reservations, page by page."""
        yield from pages(partial(self.list_reservations, cluster), "reservations")

    # Decisions

    def list_decisions(
        self,
        *,
        cluster: str | None = None,
        instance: str | None = None,
        project: str | None = None,
        result: str | None = None,
        host: str | None = None,
        since_s: float | None = None,
        until_s: float | None = None,
        marker: str | None = None,
        limit: int | None = None,
        stored: bool = False,
    ) -> Plain:
        """A page of decisions, the newest first: ``decisions``, ``next``.

        ``result`` is ``placed``, ``refused`` or ``failed``; ``host`` one of the chosen hosts; times
        are seconds since the epoch. A page may be short, or empty, and yet have a ``next``.
        ``stored`` adds the details as they are stored: see :mod:`scheduler_worker.copies`.
        """
        wanted = {
            "cluster": cluster,
            "instance": instance,
            "project": project,
            "result": result,
            "host": host,
            "since_s": since_s,
            "until_s": until_s,
            "marker": marker,
            "limit": limit,
        }
        if stored:
            wanted["stored"] = True
        answer: Plain = self._call_ours("list_decisions", "1.4", **wanted)
        return answer

    def every_decision(self, **wanted: Any) -> Iterator[Plain]:
        """All decisions, page by page; ``wanted`` as for :meth:`list_decisions`."""
        yield from pages(
            lambda marker: self.list_decisions(**{**wanted, "marker": marker}), "decisions"
        )

    def get_decision(self, id: str) -> Plain:
        """A decision with its request, filters, ranking and waits. Raises RequestError."""
        answer: Plain = self._call_ours("get_decision", "1.4", id=id)
        return answer

    def list_records(
        self, cluster: str | None = None, marker: str | None = None, limit: int | None = None
    ) -> Plain:
        """A page of the shared state's records: ``records``, ``next``, ``now_s``.

        Those of a cluster, or those that belong to none; see :mod:`scheduler_worker.copies`.
        """
        answer: Plain = self._call_ours(
            "list_records", "1.4", cluster=cluster, marker=marker, limit=limit
        )
        return answer

    # Cluster policies

    def attach_cluster_policy(self, cluster: str, policy: Mapping[str, Any]) -> None:
        """Put a policy in force for a cluster; every decision after this call is made under it.

        ``policy`` is the JSON form of :class:`~scheduler_worker.model.policies.ClusterPolicy`.

        Raises:
            RequestError: names everything that is wrong with the policy.
            Conflict: a later version of the policy is in force, or another document of this one.
        """
        self._call_ours("attach_cluster_policy", "1.1", cluster=cluster, policy=dict(policy))

    def detach_cluster_policy(self, cluster: str) -> None:
        """Return a cluster to the policy of the workers' options."""
        self._call_ours("detach_cluster_policy", "1.1", cluster=cluster)

    def get_cluster_policy(self, cluster: str) -> Plain:
        """The policy in force; ``nova`` is the one of the workers' options."""
        answer: Plain = self._call_ours("get_cluster_policy", "1.1", cluster=cluster)
        return answer

    # Tuning

    def set_tuning_policy(self, name: str, text: str | None) -> None:
        """Put a tuning policy in force in all workers; None undoes that.

        Raises RequestError, which lists all that is wrong, each with its line and column.
        """
        self._call_ours("set_tuning_policy", name=name, text=text)

    def get_tuning_policies(self) -> dict[str, str]:
        """The text of each tuning policy in force, by name."""
        answer: dict[str, str] = self._call_ours("get_tuning_policies")
        return answer

    def reset_tuning_policies(self) -> None:
        """Undo everything that was set by :meth:`set_tuning_policy`."""
        self._call_ours("reset_tuning_policies")

    def get_statistics(
        self, cluster: str | None = None, marker: str | None = None, limit: int | None = None
    ) -> Plain:
        """A page: ``hosts`` with their VMs, as tuning rules see them; ``next``, ``version``."""
        answer: Plain = self._call_ours(
            "get_statistics", cluster=cluster, marker=marker, limit=limit
        )
        return answer

    # Balancing

    def set_balancing(self, cluster: str, mode: str | None) -> None:
        """Set what a cluster's balance does: ``off``, ``dry_run`` or ``on``; None withdraws that.

        Raises RequestError, as where the cluster's policy has no balance to switch on.
        """
        self._call_ours("set_balancing", "1.2", cluster=cluster, mode=mode)

    def get_balancing(self, cluster: str | None = None) -> Plain:
        """By cluster: mode, last round, migrations under way and VMs that wait after a failure."""
        answer: Plain = self._call_ours("get_balancing", "1.2", cluster=cluster)
        return answer

    def report_migration(
        self,
        cluster: str,
        migration: str,
        state: str,
        *,
        destination: str | None = None,
        reason: str | None = None,
    ) -> bool:
        """Report that a migration is ``started``, ``done``, ``refused`` or ``failed``.

        Returns whether it was under way; an answer may be repeated.
        """
        return bool(
            self._call_ours(
                "report_migration",
                "1.2",
                cluster=cluster,
                migration=migration,
                state=state,
                destination=destination,
                reason=reason,
            )
        )

    def report_power(
        self, cluster: str, action: str, state: str, *, reason: str | None = None
    ) -> bool:
        """Report that a power action is ``started``, ``done``, ``refused`` or ``failed``.

        One that is done ends when a report shows it, so report the host's state first. Returns
        whether it was under way; an answer may be repeated.
        """
        found = self._call_ours(
            "report_power",
            "1.3",
            cluster=cluster,
            action=action,
            state=state,
            reason=reason,
        )
        return bool(found)

    # The workers themselves

    def list_workers(self) -> list[Plain]:
        """What each worker of the topic says of itself, by name; a killed one for 30 s more."""
        answer: Plain = self._call_ours(
            "list_workers",
            "1.4",
        )
        return list(answer["workers"])

    def get_worker(self, name: str) -> Plain:
        """The state of one worker, however busy it is.

        Raises Undeliverable where there is no such worker, CallTimeout where it does not answer.
        """
        return self._of_one("get_worker", name)

    def drain_worker(self, name: str) -> Plain:
        """Have a worker take no more requests until it is resumed or restarted; its state then.

        Raises as :meth:`get_worker`, and RequestError where its server cannot do so.
        """
        return self._of_one("drain_worker", name)

    def resume_worker(self, name: str) -> Plain:
        """Have a drained worker take requests again; its state then.

        Raises as :meth:`get_worker`.
        """
        return self._of_one("resume_worker", name)

    def _of_one(self, method: str, name: str) -> Plain:
        answer: Plain = self._call(self._caller_of_one(name), method, None, worker=name)
        return answer

    # Any service

    def ping(self, arg: Any = None) -> Plain:
        """Call a worker; returns its answer with ``arg``."""
        answer: Plain = self._call(self._base, "ping", None, arg=arg)
        return answer

    def _call_ours(self, method: str, since: str = "1.0", **arguments: Any) -> Any:
        """``since`` is the version that introduced the method, or an argument of it."""
        return self._call(self._ours[since], method, None, **arguments)

    @staticmethod
    def _call(client: Any, method: str, context: Plain | None, **arguments: Any) -> Any:
        context = context or {"request_id": f"req-{uuid.uuid4()}"}
        try:
            return client.call(method, context, **arguments)
        except RemoteFailure as failure:
            raise from_wire(failure.module, failure.class_name, failure.message) from None


def pages(page: Callable[[str | None], Plain], name: str) -> Iterator[Plain]:
    """All rows; ``page`` returns those after a marker."""
    marker = None
    while True:
        answer = page(marker)
        yield from answer[name]
        marker = answer["next"]
        if marker is None:
            return
