"""Requests for a look at the source of hosts: scope ``@looks``, one record under ``n:looks``.

Refreshes are numbered. Whoever needs one that begins from now on asks for the number after the last
that has begun, so all that wait at a moment share one, and one that was under way counts for none
of them. The worker that feeds begins refreshes and says when they are done.
"""

from collections.abc import Callable, Collection

import msgspec

from scheduler_worker.errors import Conflict
from scheduler_worker.ports import Put, Store
from scheduler_worker.service.state.replica import Replica

SCOPE = "@looks"
_KEY = "n:looks"
_ATTEMPTS = 32
_MOST_QUERIES = 16
"""Different queries that one refresh asks Placement."""


class RefreshRequests(msgspec.Struct, frozen=True, omit_defaults=True):
    """Which refreshes were requested, begun, and done."""

    wanted: int = 0
    begun: int = 0
    done: int = 0
    queries: dict[str, int] = {}
    """What requests that wait ask of allocation candidates -> the last refresh that they wait
    for."""


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(RefreshRequests).decode


class RefreshRecords(Replica):
    """A replica of the record. Methods raise StateUnavailable, and Conflict after many tries."""

    def __init__(self) -> None:
        super().__init__(SCOPE)
        self.book = RefreshRequests()
        """Replaced, never changed."""

    def take(self, key: str, version: int, value: bytes | None) -> None:
        if key == _KEY:
            self.book = RefreshRequests() if value is None else _decode(value)

    def ask(self, store: Store, queries: Collection[str]) -> int:
        """Request a refresh that begins from now on; returns its number.

        ``queries`` of allocation candidates find the hosts that may serve the request.
        """
        number = 0

        def asked(book: RefreshRequests) -> RefreshRequests:
            nonlocal number
            # One that is under way may have read the hosts before this request needed them.
            number = book.begun + 1
            asked = dict(book.queries)
            for query in queries:
                # A bound on what one refresh asks of Placement, however many requests wait.
                if query in asked or len(asked) < _MOST_QUERIES:
                    asked[query] = number
            return msgspec.structs.replace(book, wanted=max(book.wanted, number), queries=asked)

        self._change(store, asked)
        return number

    def begin(self, store: Store) -> tuple[int, Collection[str]] | None:
        """Begin a refresh if one is requested, or was begun and not finished.

        Returns its number, and what it is to ask for.
        """

        def begun(book: RefreshRequests) -> RefreshRequests:
            if book.wanted <= book.done:
                return book
            number = book.begun + 1
            return msgspec.structs.replace(book, begun=number, wanted=max(book.wanted, number))

        before, after = self._change(store, begun)
        if after == before:
            return None
        return after.begun, after.queries.keys()

    def finish(self, store: Store, number: int) -> None:
        """The refresh is done: what it found is stored."""

        def finished(book: RefreshRequests) -> RefreshRequests:
            queries = {query: last for query, last in book.queries.items() if last > number}
            # One whose worker was held up ends what was begun before it, and so this one, too.
            requested = book.wanted if book.wanted > book.begun else max(book.done, number)
            return msgspec.structs.replace(
                book, done=max(book.done, number), wanted=requested, queries=queries
            )

        self._change(store, finished)

    def _change(
        self, store: Store, change: Callable[[RefreshRequests], RefreshRequests]
    ) -> tuple[RefreshRequests, RefreshRequests]:
        """Compare-and-set the record; returns it as it was and as it is."""
        for _ in range(_ATTEMPTS):
            with self.reading(store):
                before = self.book
                after = change(before)
                if after == before:
                    return before, after
                written = store.write(self.scope, [self.replacing(Put(_KEY, _encode(after)))])
                if written.applied[0]:
                    self.refresh(store)
                    return before, after
        raise Conflict("Others asked for looks at the source of hosts at the same time; try again.")
