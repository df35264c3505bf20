"""The trust levels of all nodes, polled in the background so that no request waits for them."""

import logging
from typing import Annotated

import msgspec

from scheduler_worker.components import Periodic
from scheduler_worker.errors import BackendError, StateUnavailable
from scheduler_worker.options import Opt
from scheduler_worker.ports import Attestation, Clock
from scheduler_worker.scheduling.filters.compute import TrustLevels, TrustSource
from scheduler_worker.service.state.replica import Fleet

LOG = logging.getLogger(__name__)


class AttestationService(msgspec.Struct, frozen=True, kw_only=True):
    """How to reach an attestation service; ``auth_blob`` is a secret."""

    server: Annotated[str, Opt(name="attestation_server", form="host")]
    """Name or address of the attestation service; without one TrustedFilter trusts no host."""
    port: Annotated[int, Opt(name="attestation_port", form="port")] = 8443
    """Port of the attestation service, which speaks TLS."""
    api_url: Annotated[str, Opt(name="attestation_api_url")] = "/OpenAttestationWebServices/V1.0"
    """The path of the service's API, before /PollHosts."""
    auth_blob: Annotated[str | None, Opt(name="attestation_auth_blob", secret=True)] = None
    """Sent to the service in the header x-auth-blob."""
    ca_file: Annotated[str | None, Opt(name="attestation_server_ca_file")] = None
    """File with the CA certificates that the service's certificate is verified against; the
    system's if unset."""
    lasts_s: Annotated[int, Opt(name="attestation_auth_timeout", min=2)] = 60
    """Seconds for which an answer is valid; the service is asked twice in this time."""
    insecure: Annotated[bool, Opt(name="attestation_insecure_ssl")] = False
    """Whether the service's certificate is not verified. A man in the middle can then make hosts
    trusted."""
    timeout_s: float = 5.0
    """For connecting, and for each read of the response."""


_NO_LEVELS = TrustLevels(number=-1)
"""The levels when the service has not answered for too long."""


class Trust(Periodic, TrustSource):
    """Polls an attestation service twice per validity period of a level."""

    def __init__(
        self, attestation: Attestation, fleet: Fleet, clock: Clock, *, lasts_s: float
    ) -> None:
        super().__init__("attestation", self.poll, lasts_s / 2, first_s=lasts_s / 2)
        self._attestation = attestation
        self._fleet = fleet
        self._clock = clock
        self._lasts_s = lasts_s
        self._levels = TrustLevels()
        self._polled_s = float("-inf")

    def levels(self) -> TrustLevels:
        age_s = self._clock.monotonic_s() - self._polled_s
        return self._levels if age_s < self._lasts_s else _NO_LEVELS

    def poll(self) -> float:
        """Read the levels of all nodes; on a failure, log it and keep the old ones."""
        polled_s = self._clock.monotonic_s()
        try:
            nodes = self._nodes(polled_s)
            levels = self._attestation.levels(nodes) if nodes else {}
        except StateUnavailable:
            return self._interval_s  # the state backend reports its outages itself
        except BackendError as error:
            LOG.warning("%s", error)
            return self._interval_s
        if levels != self._levels.of:
            self._levels = TrustLevels(self._levels.number + 1, levels)
        self._polled_s = polled_s
        return self._interval_s

    def start(self) -> None:
        """Poll once, then keep polling in a thread."""
        self.poll()
        super().start()

    def _nodes(self, now_s: float) -> list[str]:
        nodes: set[str] = set()
        self._fleet.refresh_globals()
        for replica in self._fleet.clusters():
            replica.catch_up(self._fleet.store, self._clock, now_s)
            with replica.lock:
                nodes.update(record.nodename for record in replica.table.records)
        return sorted(nodes)
