"""Compute services: what records say of them, and whether that still is as the source has it.

A record may be some seconds old. Who chose a host asks :class:`ServiceCheck` before the answer, in
any worker, so no request goes to a host that was forced down a moment ago.
"""

import logging
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any

from scheduler_worker.errors import SourceUnavailable
from scheduler_worker.model.feed import ServiceStates
from scheduler_worker.model.host_records import HostRecord, is_watched
from scheduler_worker.model.host_reports import HostReport
from scheduler_worker.ports import Clock, HostSource
from scheduler_worker.service.feed.settings import FeedSettings
from scheduler_worker.service.state.replica import Fleet

LOG = logging.getLogger(__name__)

LONGEST_S = 2.0
"""How long a request may wait for one statement, or for a connection."""
_CONNECT_S = 60.0
"""After so long the source is asked for its parts again."""
_NO_SERVICE = {"watched": True, "up": False, "down_reason": "it has no compute service"}


def facts_of(services: ServiceStates | None, host: str, settings: FeedSettings) -> dict[str, Any]:
    """What the host's record has to say of its service."""
    state = services.by_host.get(host) if services else None
    if services is None or state is None:
        return _NO_SERVICE
    return state.facts(services.now_s, settings.silent_after_s)


def differing(
    records: Iterable[HostRecord], service_of: Callable[[HostRecord], dict[str, Any]]
) -> list[HostReport]:
    """Reports of the hosts whose records say something else of their services."""
    return [
        HostReport(host=record.host, uuid=record.uuid, service=service)
        for record in records
        if (service := service_of(record)) != record.service
    ]


def watched(fleet: Fleet) -> Iterator[HostRecord]:
    """The hosts that a feed watches, as this process knows them."""
    for replica in fleet.clusters():
        with replica.lock:
            hosts = list(filter(is_watched, replica.table.records))
        yield from hosts


class ServiceCheck:
    """Compares records with the source, and stores what differs; safe for threads."""

    def __init__(
        self,
        source: HostSource,
        fleet: Fleet,
        update_hosts: Callable[[list[HostReport]], object],
        clock: Clock,
        settings: FeedSettings,
    ) -> None:
        """``source`` is one whose answers come within seconds, or not at all."""
        self._source = source
        self.close = source.close
        self._fleet = fleet
        self._update_hosts = update_hosts
        self._clock = clock
        self._settings = settings
        self._connecting = threading.Lock()
        self._connected_s = float("-inf")
        self._left_alone_until_s: dict[str, float] = {}
        """The parts that could not be read."""

    def verify(self, part_id: str, host_uuids: Collection[str]) -> Mapping[str, Mapping[str, Any]]:
        """The facts of these hosts' services as they are now, by uuid.

        If a record has others, all services of the part are read and stored: a host is seldom
        alone when a rack fails. Hosts that report for themselves are left out.

        Raises SourceUnavailable, Conflict, StateUnavailable.
        """
        fed = [
            record
            for record in self._fleet.records_of(host_uuids)
            if is_watched(record) and record.cell_uuid == part_id
        ]
        if not fed:
            return {}
        if self._clock.monotonic_s() < self._left_alone_until_s.get(part_id, 0.0):
            raise SourceUnavailable(f"The services of cell {part_id} could not be read lately")
        try:
            self._connect()
            services = self._source.services(part_id, [record.host for record in fed])
            has_changed = bool(self._differing(services, fed))
            services = self._source.services(part_id) if has_changed else services
        except SourceUnavailable as error:
            self._leave_alone(part_id, error)
            raise
        if self._left_alone_until_s.pop(part_id, None):
            LOG.info("The services of cell %s can be read again", part_id)
        if has_changed:
            hosts = (record for record in watched(self._fleet) if record.cell_uuid == part_id)
            reports = self._differing(services, hosts)
            self._update_hosts(reports)
            LOG.info("The services of %d hosts have changed since they were read", len(reports))
        return {record.uuid: facts_of(services, record.host, self._settings) for record in fed}

    def _connect(self) -> None:
        with self._connecting:
            now_s = self._clock.monotonic_s()
            if now_s >= self._connected_s + _CONNECT_S:
                self._source.connect()
                self._connected_s = now_s

    def _leave_alone(self, part_id: str, error: SourceUnavailable) -> None:
        """Requests do not wait for it again soon: its hosts count as they are known."""
        is_new = part_id not in self._left_alone_until_s
        now_s = self._clock.monotonic_s()
        self._left_alone_until_s[part_id] = now_s + self._settings.services_interval_s
        self._connected_s = float("-inf")
        LOG.log(
            logging.WARNING if is_new else logging.DEBUG,
            "Hosts are chosen by what is known, as their services cannot be read: %s",
            error,
        )

    def _differing(self, services: ServiceStates, hosts: Iterable[HostRecord]) -> list[HostReport]:
        return differing(hosts, lambda record: facts_of(services, record.host, self._settings))
