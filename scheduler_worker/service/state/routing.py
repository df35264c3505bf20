"""The state of one request between clusters: where it may go, and where it has been."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from scheduler_worker.model.claims import Reservation

CLUSTER_HINT = "cluster"
"""The scheduler hint that names a cluster."""


class Routing:
    """What later attempts of a request need to know of earlier ones; decisions depend on it."""

    def __init__(self) -> None:
        self.any_cluster = False
        """Whether the request may go to any of several clusters."""
        self.moves_seen: Mapping[str, int] = {}
        """Cluster -> its count of host moves when all clusters were last read."""
        self.refused_at: dict[str, int] = {}
        """Cluster where no host passed -> its capacity version at that time."""
        self.is_partly_reserved = False
        """Whether the cluster that refused it last has reservations for some of its instances."""
        self.declared: dict[str, int] = {}
        """Instance uuid -> version of the placement intent that this request wrote last."""
        self.committed: dict[str, Sequence[Reservation]] = {}
        """Cluster -> what was reserved there, as it was written."""
        self.detours = 0
        """How often its instances turned out to be decided in another cluster."""

    def detour(self) -> None:
        """Start over: the instances are decided elsewhere, so the declared intents are void."""
        self.declared.clear()
        self.detours += 1
