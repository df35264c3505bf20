"""A client of the workers: each RPC method as a Python call.

::

    with SchedulerClient.connect("rabbit://user:secret@broker:5672/") as scheduler:
        [[chosen, *alternates]] = scheduler.select_destinations(spec, ["6f0b..."])

Errors of the worker are raised here as the same classes of :mod:`scheduler_worker.errors`.
"""

from __future__ import annotations

import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from msgspec import structs

from scheduler_worker.errors import NotFound, RemoteFailure, Undeliverable
from scheduler_worker.rpc import versions
from scheduler_worker.rpc.defaults import EXCHANGE, TOPIC
from scheduler_worker.rpc.wire_errors import from_wire

if TYPE_CHECKING:
    from pathlib import Path

    from scheduler_worker.model.decisions import Selection
    from scheduler_worker.operations.operation import Operation, Page, PageQuery
    from scheduler_worker.rpc.transport import Bus

Plain = dict[str, Any]

Parameters = TypeVar("Parameters", bound=msgspec.Struct)
Answer = TypeVar("Answer")
Item = TypeVar("Item")
AnyQuery = TypeVar("AnyQuery", bound="PageQuery")


class OperationsClient(ABC):
    """Calls operations of :mod:`scheduler_worker.operations`, wherever they are served."""

    @abstractmethod
    def call(self, operation: Operation[Parameters, Answer], parameters: Parameters) -> Answer:
        """Call an operation; returns its typed answer, and raises what it does."""

    def every(self, operation: Operation[AnyQuery, Page[Item]], query: AnyQuery) -> Iterator[Item]:
        """All items of a list, page by page."""
        while True:
            page = self.call(operation, query)
            yield from page.items
            if page.next is None:
                return
            query = structs.replace(query, marker=page.next)


class SchedulerClient(OperationsClient, AbstractContextManager["SchedulerClient"]):
    """Calls and casts to the workers of one topic. Safe to share between threads.

    What needs no server is all that is imported here, and most of it only where it is used.
    """

    def __init__(
        self,
        bus: Bus,
        *,
        topic: str = TOPIC,
        timeout_s: float = 60.0,
        call_monitor_timeout_s: int | None = None,
    ) -> None:
        self._bus = bus
        self._owns_bus = False
        client = partial(
            bus.client, topic, timeout_s=timeout_s, call_monitor_timeout_s=call_monitor_timeout_s
        )
        self._nova = client(version=versions.NOVA)
        self._ours = lru_cache(
            lambda server: client(
                server=server, namespace=versions.NAMESPACE, version=versions.WORKER
            )
        )
        self._base = client(namespace="baseapi", version=versions.BASEAPI)
        self._fanout = bus.client(topic, version="4.2", fanout=True)

    @classmethod
    def connect(
        cls,
        url: str | None = None,
        *,
        config_file: str | Path | None = None,
        topic: str = TOPIC,
        exchange: str = EXCHANGE,
        timeout_s: float = 60.0,
        call_monitor_timeout_s: int | None = None,
    ) -> SchedulerClient:
        """A client with a bus of its own, which :meth:`close` closes.

        ``config_file`` is an oslo.config file with what a URL cannot express: TLS, and the kind of
        queues, which must be that of the workers (``[oslo_messaging_rabbit]``). Its ``[DEFAULT]
        transport_url`` applies where ``url`` is not given.
        """
        # Only who connects waits for oslo.messaging, half a second.
        from scheduler_worker.configuration import Configuration
        from scheduler_worker.rpc.transport import Bus, register_opts

        files = [f"--config-file={config_file}"] if config_file else []
        conf = Configuration(register_opts, files, (), "scheduler-worker")
        bus = Bus(conf, url=url, exchange=exchange)
        client = cls(
            bus, topic=topic, timeout_s=timeout_s, call_monitor_timeout_s=call_monitor_timeout_s
        )
        client._owns_bus = True
        return client

    def close(self) -> None:
        """Close the bus, if it is this client's own."""
        if self._owns_bus:
            self._bus.close()

    def __exit__(self, *_: object) -> None:
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

        Raises NoValidHost, RequestError, ClusterLockTimeout, StateUnavailable: see their
        docstrings.
        """
        from scheduler_worker.codec import decode_selection

        answer = self._call(
            self._nova,
            "select_destinations",
            context,
            spec_obj=dict(spec),
            instance_uuids=list(instance_uuids) if instance_uuids else None,
            return_objects=True,
            return_alternates=return_alternates,
        )
        return [list(map(decode_selection, selections)) for selections in answer]

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
        self._ours(None).cast(
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

    # What operators ask for

    def call(self, operation: Operation[Parameters, Answer], parameters: Parameters) -> Answer:
        """Call an operation of :mod:`scheduler_worker.operations`; returns its typed answer.

        ::

            page = scheduler.call(hosts.list_hosts, hosts.HostQuery(cluster="east"))

        Raises NotFound where its parameter ``worker`` names none, and what the operation does.
        """
        from scheduler_worker.operations.forms import answered

        arguments = structs.asdict(parameters)
        return answered(operation, self._asked(operation, arguments))  # type: ignore[no-any-return]

    def __getattr__(self, name: str) -> Callable[..., Any]:
        """An operation by its name: ``scheduler.list_hosts(cluster="east")``, in plain values.

        Its own parameters may be given by position, parameters of pages by name.
        """
        from scheduler_worker.operations import OPERATIONS
        from scheduler_worker.operations.operation import PageQuery

        operation = next((operation for operation in OPERATIONS if operation.name == name), None)
        if operation is None or operation.home == "api":
            raise AttributeError(f"there is no operation {name!r}")
        fields = (field.name for field in operation.fields)
        names = [name for name in fields if name not in PageQuery.__struct_fields__]

        def call(*values: Any, **named: Any) -> Any:
            if len(values) > len(names):
                raise TypeError(f"{name} takes by position: {', '.join(names) or 'nothing'}")
            return self._asked(operation, {**dict(zip(names, values, strict=False)), **named})

        return call

    def _asked(self, operation: Operation[Any, Any], values: Mapping[str, Any]) -> Any:
        """Leaves out what is None, which is the default of what may be."""
        arguments = {name: value for name, value in values.items() if value is not None}
        server = str(values["worker"]) if operation.home == "worker" else None
        plain = msgspec.to_builtins(arguments)
        try:
            return self._call(self._ours(server), operation.name, None, **plain)
        except Undeliverable:
            if server is None:
                raise
            raise NotFound("worker", server) from None

    # Migrations and power actions, as their agents report them

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
        asked = {"cluster": cluster, "migration": migration, "state": state}
        known = {"destination": destination, "reason": reason}
        return bool(self._call_ours("report_migration", **asked, **known))

    def report_power(
        self, cluster: str, action: str, state: str, *, reason: str | None = None
    ) -> bool:
        """Report that a power action is ``started``, ``done``, ``refused`` or ``failed``.

        One that is done ends when a report shows it, so report the host's state first. Returns
        whether it was under way; an answer may be repeated.
        """
        asked = {"cluster": cluster, "action": action, "state": state, "reason": reason}
        return bool(self._call_ours("report_power", **asked))

    # Any service

    def ping(self, arg: Any = None) -> Plain:
        """Call a worker; returns its answer with ``arg``."""
        answer: Plain = self._call(self._base, "ping", None, arg=arg)
        return answer

    def _call_ours(self, method: str, **arguments: Any) -> Any:
        return self._call(self._ours(None), method, None, **arguments)

    @staticmethod
    def _call(client: Any, method: str, context: Plain | None, **arguments: Any) -> Any:
        context = context or {"request_id": f"req-{uuid.uuid4()}"}
        try:
            return client.call(method, context, **arguments)
        except RemoteFailure as failure:
            raise from_wire(failure.module, failure.class_name, failure.message) from None
