"""Which cluster a host of a feed is in."""

from __future__ import annotations

import logging

import msgspec

from scheduler_worker.model.aggregates import Aggregate, by_host
from scheduler_worker.model.feed import Outline, Part
from scheduler_worker.model.host_records import ClusterName
from scheduler_worker.service.feed.settings import FeedSettings

LOG = logging.getLogger(__name__)


class ClusterNames:
    """The clusters of hosts, by the setting and one outline of the source.

    A name that is none for a cluster is logged once for each outline. Instead of a cell's, its id
    is used; instead of an aggregate's value, the default cluster.
    """

    def __init__(self, settings: FeedSettings, outline: Outline) -> None:
        self._settings = settings
        self._aggregates = by_host(outline.aggregates) if settings.clusters == "aggregate" else {}
        self._refused: set[str] = set()

    def of(self, host: str, part: Part) -> str:
        """The cluster of a host name."""
        if self._settings.clusters == "cell":
            return self._checked(part.name, f"cell {part.id}", part.id)
        for aggregate in self._aggregates.get(host, ()):
            name = self._named_by(aggregate)
            if name is not None:
                return name
        return self._settings.default_cluster

    def _named_by(self, aggregate: Aggregate) -> str | None:
        """The cluster that an aggregate names; the first such aggregate of a host decides."""
        key, default = self._settings.cluster_key, self._settings.default_cluster
        if key not in aggregate.metadata:
            return None
        where = f"aggregate {aggregate.name or aggregate.id}, metadata {key}"
        return self._checked(aggregate.metadata[key], where, default)

    def _checked(self, name: str, where: str, instead: str) -> str:
        try:
            return msgspec.convert(name, ClusterName)
        except msgspec.ValidationError:
            if where not in self._refused:
                self._refused.add(where)
                LOG.warning(
                    "%s: %r cannot be the name of a cluster, which begins with a letter or digit "
                    "and has only these and _.:- in it; cluster %s is used", where, name, instead,
                )  # fmt: skip
            return instead
