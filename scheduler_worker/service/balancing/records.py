"""Records of balancing in the shared state, scope ``@balancing``: turns, and last rounds.

``u:`` and a cluster's name is its turn, ``r:`` and the name its last round. What binds, the ledger
of migrations and the mode, is in the cluster's own scope: placing VMs reads it too.
"""

from __future__ import annotations

import msgspec

from scheduler_worker.model.cluster_load import Round
from scheduler_worker.ports import Put, Store, Transaction
from scheduler_worker.service.state.replica import RecordKind
from scheduler_worker.service.state.turns import Turn, TurnRecords

SCOPE = "@balancing"
_ROUND = "r:"
_KEEP_S = 86_400.0


_encode = msgspec.json.Encoder().encode
_round = msgspec.json.Decoder(Round).decode


class BalancingRecords(TurnRecords[Turn]):
    """A replica of the records."""

    def __init__(self) -> None:
        self._rounds = RecordKind(_ROUND, bytes)
        """Decoded on demand: most workers need none of them."""
        super().__init__(SCOPE, Turn, self._rounds)

    def last_round(self, cluster: str) -> Round | None:
        """The last round of a cluster; None: there was none within a day."""
        found = self._rounds.get(cluster)
        return None if found is None else _round(found)

    def write_round(self, store: Store, cluster: str, found: Round) -> None:
        """Write the last round of a cluster. Raises StateUnavailable."""
        put = Put(_ROUND + cluster, _encode(found), found.at_s + _KEEP_S)
        store.write(SCOPE, [Transaction([put])])
