"""The tokens of the REST API, as records of the shared state's scope ``@tokens``.

Every API process sees a new or revoked token with its next request, a restart ends none, and the
store deletes expired tokens. ``k:`` and a token's digest is the token.
"""

import msgspec

from scheduler_worker.conversion import json_reader
from scheduler_worker.ports import ABSENT, ApiToken, Guard, Put, Store, Transaction
from scheduler_worker.service.state.replica import RecordKind, Replica

SCOPE = "@tokens"
_TOKEN = "k:"  # noqa: S105 - the beginning of a key
MAX_TOKENS = 1000
"""Upper bound of a user's tokens; one more ends the token that would expire first."""


class SharedApiTokens(Replica):
    """Implements ``ports.ApiTokens``; each method raises StateUnavailable."""

    def __init__(self, store: Store) -> None:
        self._tokens = RecordKind(_TOKEN, json_reader(ApiToken))
        super().__init__(SCOPE, self._tokens)
        self._store = store

    def add(self, token: ApiToken) -> None:
        with self.reading(self._store):
            own = [earlier for earlier in self._tokens.values() if earlier.user == token.user]
            own.sort(key=lambda earlier: earlier.expires_at_s)
            too_many = own[: max(0, len(own) - MAX_TOKENS + 1)]
        puts = [Put(_TOKEN + earlier.digest, None) for earlier in too_many]
        puts.append(Put(_TOKEN + token.digest, msgspec.json.encode(token), token.expires_at_s))
        self._store.write(SCOPE, [Transaction(puts)])

    def extend(self, token: ApiToken) -> None:
        key = _TOKEN + token.digest
        with self.lock:
            seen = Guard(key, self.version(key))
        if seen.version == ABSENT:
            return
        put = Put(key, msgspec.json.encode(token), token.expires_at_s)
        self._store.write(SCOPE, [Transaction([put], [seen])])

    def find(self, digest: str) -> ApiToken | None:
        with self.reading(self._store):
            return self._tokens.get(digest)

    def remove(self, digest: str) -> None:
        self._store.write(SCOPE, [Transaction([Put(_TOKEN + digest, None)])])
