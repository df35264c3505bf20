"""Puts in force what the book says: the document of each attached cluster, and enabled units.

The book is read *after* the version of what is in force, which the write then guards. So of two
processes, the one whose document is outdated is refused and reads again: the last one in force is
the last one in the book.
"""

from collections.abc import Callable, Iterable, Iterator

from scheduler_worker.errors import (
    AdministrationError,
    BackendError,
    Conflict,
    RequestError,
    StateUnavailable,
)
from scheduler_worker.model.documents import Documents
from scheduler_worker.model.policies import ClusterPolicy
from scheduler_worker.service.documents import rules
from scheduler_worker.service.documents.book import Book, Revision
from scheduler_worker.service.documents.library import Library
from scheduler_worker.service.policies.cluster_policies import ClusterPolicies

UNITS = "@units"
"""Stands for the units among the names of clusters, none of which begins so."""


class PolicyPublisher:
    """The only writer of the policies in force; safe for threads."""

    def __init__(
        self, book: Book, library_of: Callable[[Documents], Library], in_force: ClusterPolicies
    ) -> None:
        self._book = book
        self._library_of = library_of
        self._in_force = in_force

    def publish(self, revision: Revision, *clusters: str) -> None:
        """Put what an edit changed in force, and all of these clusters.

        What fails in some is raised at the end: StateUnavailable or Conflict.
        """
        failed: StateUnavailable | Conflict | None = None
        for cluster in sorted({*changed(revision), *clusters}):
            try:
                self._settle(cluster)
            except (StateUnavailable, Conflict) as error:
                where = "for units" if cluster == UNITS else f"in cluster {cluster}"
                failed = type(error)(
                    f"The change is stored, and takes effect {where} within a minute after the "
                    f"shared state can be written: {error}"
                )
        if failed is not None:
            raise failed

    def publish_all(self) -> tuple[list[str], dict[str, str]]:
        """Put all of it in force: the clusters that differed, and why others still do.

        A cluster whose policy cannot be put in force keeps its old one and does not stop the
        others. :data:`UNITS` stands for the units. Raises StateUnavailable.
        """
        repaired: list[str] = []
        problems: dict[str, str] = {}
        for cluster in [UNITS, *sorted(self._book.documents().attachments)]:
            try:
                if self._settle(cluster):
                    repaired.append(cluster)
            except (AdministrationError, BackendError, Conflict, RequestError) as error:
                problems[cluster] = str(error)
        return repaired, problems

    def _settle(self, cluster: str) -> bool:
        """Whether it was not in force.

        Raises:
            NotFound: the policy is built in, and this version has none of that id.
            RequestError: the policy cannot be compiled here; the old one stays in force.
            StateUnavailable, Conflict: the shared state cannot be written now.
        """
        if cluster == UNITS:
            return self._in_force.settle_units(lambda: set(_enabled(self._book.documents())))

        def stored(now: ClusterPolicy | None) -> ClusterPolicy | None:
            library = self._library_of(self._book.documents())
            if cluster not in library.documents.attachments:
                return now
            return library.to_be_in_force(cluster)

        return self._in_force.settle(cluster, stored)


def changed(revision: Revision) -> Iterator[str]:
    """The clusters whose policy or attachment an edit changed, and :data:`UNITS`."""
    before, after = revision
    if before is after:
        return
    yield from rules.differing(before.attachments, after.attachments)
    for policy_id in rules.differing(before.policies, after.policies):
        yield from after.clusters_of(policy_id)
    if set(_enabled(before)) != set(_enabled(after)):
        yield UNITS


def _enabled(documents: Documents) -> Iterable[str]:
    return (unit.id for unit in documents.units.values() if unit.is_enabled)
