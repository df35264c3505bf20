"""RPC method that copies what decisions are made by; ``docs/rpc.md``, section 4."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from scheduler_worker.errors import RequestError
from scheduler_worker.rpc import codec
from scheduler_worker.rpc.contract import Context, Endpoint
from scheduler_worker.rpc.worker import NAMESPACE, VERSION
from scheduler_worker.service.replay.snapshot import Snapshots

MAX_LIMIT = 1000


class SnapshotsEndpoint:
    """Copies records of the shared state, for rehearsals elsewhere."""

    def __init__(self, snapshots: Snapshots, known: Callable[[], Collection[str]]) -> None:
        """``known`` returns the names of the clusters."""
        self._snapshots = snapshots
        self._known = known

    def endpoint(self) -> Endpoint:
        """The methods of namespace ``scheduler_worker`` that are about snapshots."""
        return Endpoint(NAMESPACE, VERSION, {"list_records": self.list_records})

    def list_records(
        self, context: Context, cluster: Any = None, marker: Any = None, limit: Any = None
    ) -> dict[str, Any]:
        """Return records of a cluster, or those that belong to none, by their keys."""
        if cluster is None:
            found = self._snapshots.globals()
        else:
            name = codec.decode_name(cluster, "cluster")
            if name not in self._known():
                raise RequestError("cluster", f"there is no cluster {name!r:.80}")
            after = None if marker is None else codec.decode_name(marker, "marker")
            most = min(codec.decode_limit(limit, default=MAX_LIMIT), MAX_LIMIT)
            found = self._snapshots.page(name, after, most)
        return {
            "now_s": found.now_s,
            "records": {key: value.decode() for key, value in found.records.items()},
            "next": found.next,
        }
