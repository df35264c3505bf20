"""The tuning policies in force: from the operator's files, and from RPC, which take precedence.

A policy that does not load leaves its previous version in force and raises an alarm; other policies
are not affected. Policies set by RPC are kept in the shared state, where every worker finds them
before its next cycle.
"""

import logging
import math
import re
import threading
from collections.abc import Collection, Iterator, Mapping, Sequence

import msgspec

from scheduler_worker.errors import Conflict, RequestError, TextInvalid, TuningPolicyError
from scheduler_worker.model.issues import Issue, Kind, Place
from scheduler_worker.model.policies import TuningProblem, TuningText
from scheduler_worker.ports import (
    ABSENT,
    Guard,
    Put,
    Store,
    Transaction,
    TuningPolicySource,
    TuningPolicyTexts,
)
from scheduler_worker.service.tuning.records import POLICY, SCOPE, TuningRecords, put_policy
from scheduler_worker.tuning import loader, yaml_subset
from scheduler_worker.tuning.issues import Issues, quoted
from scheduler_worker.tuning.program import Program
from scheduler_worker.tuning.samples import Value
from scheduler_worker.tuning.yaml_subset import Node, Scalar, Source

LOG = logging.getLogger(__name__)

MOST_POLICIES = 100
"""The number of policies that may be set by RPC."""
_MOST_ISSUES = 10
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
ALL_CLUSTERS = "*"
_NUMBER = re.compile(r"[-+]?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?")
_BOOLEANS = {"true": True, "false": False}


class CurrentPolicy(TuningText, frozen=True):
    """A policy in force."""

    version: int = ABSENT
    """Of the record of a policy that was set."""


class Alarm(TuningProblem, frozen=True):
    """A problem, and where it is."""

    place: Place | None = None

    def __str__(self) -> str:
        return f"{self.place or self.file or f'RPC {self.policy}'}: {self.message}"


class Clusters(msgspec.Struct, frozen=True):
    """The clusters file: which policies apply to which clusters, with which parameters.

    It is written like this::

        clusters:                   # a policy that is not named here applies to every cluster
          ballooning: [east, west]
        parameters:                 # seen by rules as policy.<name>; "*": every cluster's
          "*": {balloon_enabled: true}
          east: {balloon_min: 1048576}
    """

    restricted: Mapping[str, Collection[str]] = {}
    """Policy -> its clusters; a policy without an entry applies to every cluster."""
    parameters: Mapping[str, Mapping[str, Value]] = {}

    def applies(self, policy: str, cluster: str) -> bool:
        return policy not in self.restricted or cluster in self.restricted[policy]

    def parameters_of(self, cluster: str) -> dict[str, Value]:
        """Return the parameters of a cluster, which rules see as ``policy.<name>``."""
        return {**self.parameters.get(ALL_CLUSTERS, {}), **self.parameters.get(cluster, {})}


class TuningPolicies:
    """The tuning policies in force in this process, and where they apply."""

    def __init__(self, store: Store, files: TuningPolicySource) -> None:
        self.records = TuningRecords()
        self.alarms: tuple[Alarm, ...] = ()
        """What could not be read or loaded."""
        self.generation = 0
        """Incremented whenever something else may be in force."""
        self._store = store
        self._files = files
        self._guard = threading.RLock()
        self._last_read: tuple[TuningPolicyTexts, dict[str, str]] | None = None
        self._from_files: dict[str, TuningText] = {}
        """The policies of the files, whether they load or not."""
        self._in_force: dict[str, TuningText] = {}
        self._clusters = Clusters()
        self._programs: dict[tuple[str, ...], Program] = {}

    def read_from(self, files: TuningPolicySource) -> None:
        """Read other files, now and from now on."""
        with self._guard:
            self._files = files
        self._read()

    def refresh(self) -> None:
        """Read the files and the policies set by RPC again. Raises StateUnavailable."""
        self.records.refresh(self._store)
        self._read()

    def _read(self) -> None:
        with self._guard:
            with self.records.lock:
                by_rpc = dict(self.records.texts)
            read = (self._files.read(), by_rpc)
            if read != self._last_read:  # loading costs far more than comparing texts
                self._put_in_force(*read)
                self._last_read = read

    def program(self, cluster: str) -> Program | None:
        """Return a cluster's policies, compiled together; None when it has none."""
        with self._guard:
            names = tuple(name for name in self._in_force if self._clusters.applies(name, cluster))
            if names and names not in self._programs:
                # The ids of rules begin with the policy's name, not with the path of its file.
                sources = [Source(name, self._in_force[name].text) for name in names]
                self._programs[names] = loader.load(sources)
            return self._programs[names] if names else None

    def parameters(self, cluster: str) -> dict[str, Value]:
        """Return a cluster's parameters, which rules see as ``policy.<name>``."""
        return self._clusters.parameters_of(cluster)

    def describe(self) -> dict[str, object]:
        """Return the places of the policies in force, and the alarms."""
        places = {name: policy.place for name, policy in self._in_force.items()}
        return {"policies": places, "alarms": list(map(str, self.alarms))}

    # Changes

    def current(self) -> list[CurrentPolicy]:
        """Return the policies that were set, and the files', by name. Raises StateUnavailable."""
        self.refresh()
        with self._guard, self.records.lock:
            texts = self.records.texts
            policies = [
                CurrentPolicy(policy.name, policy.text, policy.file)
                for policy in self._in_force.values()
                if policy.name not in texts
            ]
            policies += [
                CurrentPolicy(name, text, None, self.records.version(POLICY + name))
                for name, text in texts.items()
            ]
        return sorted(policies, key=lambda policy: policy.name)

    def check(self, name: str, text: str) -> None:
        """Check a policy as :meth:`set` does, and change nothing; raises as it does."""
        _check_name(name)
        if issues := issues_of(name, text):
            raise TextInvalid("text", issues)
        self.refresh()
        if len(self.records.texts.keys() | {name}) > MOST_POLICIES:
            raise RequestError("name", f"there are {MOST_POLICIES} policies; remove one")

    def set(self, name: str, text: str | None, *, version: int | None = None) -> None:
        """Put a policy in force in all workers; None withdraws it in favour of the file's.

        With ``version`` only if its record still has that one (``ABSENT``: there is none).

        Raises:
            RequestError: the name is invalid, or the policy has issues; names them all.
            Conflict: another change was first.
            StateUnavailable: the store cannot be reached.
        """
        if text is None:
            _check_name(name)
        else:
            self.check(name, text)
        self._write([put_policy(name, text)], {} if version is None else {name: version})

    def reset(self, versions: Mapping[str, int]) -> None:
        """Withdraw policies set by RPC, by name with their versions.

        Raises:
            Conflict: one of these has another version by now; none is withdrawn.
            StateUnavailable: the store cannot be reached.
        """
        self._write([put_policy(name, None) for name in versions], versions)

    def _write(self, puts: list[Put], versions: Mapping[str, int]) -> None:
        guards = [Guard(POLICY + name, version) for name, version in versions.items()]
        is_applied = all(self._store.write(SCOPE, [Transaction(puts, guards)]).applied)
        self.refresh()
        if not is_applied:
            raise Conflict("Another change of the tuning policies was first; read them again.")

    # Loading

    def _put_in_force(self, read: TuningPolicyTexts, by_rpc: Mapping[str, str]) -> None:
        alarms = [Alarm(problem.message, problem.file) for problem in read.problems]
        from_files = {policy.name: policy for policy in read.policies}
        # While a file or directory cannot be read, a missing policy may be in it: none is dropped.
        self._from_files = self._from_files | from_files if read.problems else from_files
        policies = self._from_files | {
            name: TuningText(name, text, None) for name, text in by_rpc.items()
        }
        loaded = {name: self._loaded(policy, alarms) for name, policy in policies.items()}
        self._in_force = {name: policy for name, policy in sorted(loaded.items()) if policy}
        if (file := read.clusters) is not None:
            try:
                self._clusters = read_clusters(Source(file.place, file.text))
            except TuningPolicyError as error:
                alarms.extend(_alarms(error.issues, file.file))
        elif not read.problems:
            self._clusters = Clusters()
        self._programs = {}
        self.generation += 1
        for alarm in alarms:
            if alarm not in self.alarms:
                LOG.warning("Tuning keeps the version before in force: %s", alarm)
        self.alarms = tuple(alarms)

    def _loaded(self, policy: TuningText, alarms: list[Alarm]) -> TuningText | None:
        """Return the policy if it loads, else its version in force, if any."""
        name, file = policy.name, policy.file
        if not _NAME.fullmatch(name):
            alarms.append(Alarm("a policy's name has letters, digits and _.- only", file, name))
            return None
        if issues := issues_of(policy.place, policy.text):
            alarms.extend(_alarms(issues, file, name))
            return self._in_force.get(name)
        return policy


def issues_of(name: str, text: str) -> Sequence[Issue]:
    """Return all issues of a policy; ``name`` is that of the text in their places."""
    try:
        loader.load([Source(name, text)])
    except TuningPolicyError as error:
        return error.issues
    return ()


def _check_name(name: str) -> None:
    if not _NAME.fullmatch(name):
        raise RequestError("name", "must be 1 to 64 letters, digits, or one of _.-")


def _alarms(issues: Sequence[Issue], file: str | None, name: str | None = None) -> Iterator[Alarm]:
    for issue in issues[:_MOST_ISSUES]:
        yield Alarm(issue.what, file, name, issue.place)
    if len(issues) > _MOST_ISSUES:
        yield Alarm(f"and {len(issues) - _MOST_ISSUES} more", file, name)


def read_clusters(source: Source) -> Clusters:
    """Read the file, as strictly as a policy. Raises TuningPolicyError with all its issues."""
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
        if not isinstance(node, yaml_subset.Sequence):
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
