"""The clusters file: which tuning policies apply to which clusters, with which parameters. ::

    clusters:                       # a policy that is not named here applies to every cluster
      ballooning: [east, west]
    parameters:                     # seen by rules as policy.<name>; "*": every cluster's
      "*": {balloon_enabled: true}
      east: {balloon_min: 1048576}

It is read as strictly as a policy, with issues of the same form.
"""

import math
import re
from collections.abc import Collection, Iterator, Mapping

import msgspec

from scheduler_worker.tuning import yaml_subset
from scheduler_worker.tuning.issues import Issues, Kind, quoted
from scheduler_worker.tuning.samples import Value
from scheduler_worker.tuning.yaml_subset import Node, Scalar, Sequence, Source

ALL_CLUSTERS = "*"
_NUMBER = re.compile(r"[-+]?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?")
_BOOLEANS = {"true": True, "false": False}


class Clusters(msgspec.Struct, frozen=True):
    """Which policies apply to which clusters, and the clusters' parameters."""

    restricted: Mapping[str, Collection[str]] = {}
    """Policy -> its clusters; a policy without an entry applies to every cluster."""
    parameters: Mapping[str, Mapping[str, Value]] = {}

    def applies(self, policy: str, cluster: str) -> bool:
        return policy not in self.restricted or cluster in self.restricted[policy]

    def parameters_of(self, cluster: str) -> dict[str, Value]:
        """Return the parameters of a cluster, which rules see as ``policy.<name>``."""
        return {**self.parameters.get(ALL_CLUSTERS, {}), **self.parameters.get(cluster, {})}


def read(source: Source) -> Clusters:
    """Read the file. Raises TuningPolicyError with all its issues."""
    issues = Issues()
    root = yaml_subset.read(source, issues)
    reader = _Reader(issues)
    sections: dict[str, dict[str, Node]] = {"clusters": {}, "parameters": {}}
    for key, node in reader.entries(root, "") if root else ():
        if key in sections:
            sections[key] = dict(reader.entries(node, key))
        else:
            reader.report(node, key, "is not known here; write clusters or parameters")
    restricted = {
        policy: reader.names(node, f"clusters.{policy}")
        for policy, node in sections["clusters"].items()
    }
    parameters = {
        cluster: reader.values(node, f"parameters.{cluster}")
        for cluster, node in sections["parameters"].items()
    }
    issues.raise_if_any()
    return Clusters(restricted, parameters)


class _Reader:
    """Reads node by node; each method reports issues and returns what it could read."""

    def __init__(self, issues: Issues) -> None:
        self._issues = issues

    def entries(self, node: Node, path: str) -> Iterator[tuple[str, Node]]:
        """``{ NAME: node, ... }``."""
        if isinstance(node, yaml_subset.Mapping):
            yield from ((key, value) for key, (_, value) in node.entries.items())
        elif not (isinstance(node, Scalar) and node.is_null):
            self.report(node, path, "must be a mapping")

    def names(self, node: Node, path: str) -> frozenset[str]:
        """``[ NAME, ... ]``."""
        if not isinstance(node, Sequence):
            self.report(node, path, "must be a list of clusters")
            return frozenset()
        scalars = [item for item in node.items if isinstance(item, Scalar) and not item.is_null]
        if len(scalars) < len(node.items):
            self.report(node, path, "must be a list of names")
        return frozenset(scalar.text for scalar in scalars)

    def values(self, node: Node, path: str) -> dict[str, Value]:
        """``{ NAME: number | true | false | text, ... }``."""
        return {key: self._value(value, f"{path}.{key}") for key, value in self.entries(node, path)}

    def _value(self, node: Node, path: str) -> Value:
        if not isinstance(node, Scalar) or node.is_null:
            self.report(node, path, "must be a number, true, false or a text")
            return None
        if node.plain and node.text in _BOOLEANS:
            return _BOOLEANS[node.text]
        if node.plain and _NUMBER.fullmatch(node.text) and math.isfinite(float(node.text)):
            return float(node.text)
        if node.plain and node.text[:1] in "-+.0123456789":
            problem = f"{quoted(node.text)} is not a number; quote it if it is a text"
            self.report(node, path, problem)
        return node.text

    def report(self, node: Node, path: str, message: str) -> None:
        """Add an issue of a node, unless it has one already."""
        if type(node) is not Node:
            self._issues.add(Kind.SCHEMA, node.place, path, message)
