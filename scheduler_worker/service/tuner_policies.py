"""Which policies are in force: from the operator's files, and from RPC, which go before them.

What does not load leaves the old one in force and raises an alarm, policy by policy. What comes by
RPC is kept in the shared state, in a scope of its own, beside the turns of the clusters, and so
every worker finds it before its next cycle.
"""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Iterator, Mapping

import msgspec

from scheduler_worker.errors import PolicyError, RequestError
from scheduler_worker.ports import PolicyFiles, PolicyText, PolicyTexts, Put, Store, Transaction
from scheduler_worker.service import tuner_clusters
from scheduler_worker.service.replica import Replica
from scheduler_worker.service.tuner_clusters import Clusters
from scheduler_worker.tuning import policy
from scheduler_worker.tuning.issues import Issue
from scheduler_worker.tuning.program import Program
from scheduler_worker.tuning.samples import Value
from scheduler_worker.tuning.yaml_subset import Source

LOG = logging.getLogger(__name__)

SCOPE = "@tuning"
TEXT, TURN = "t:", "u:"
MOST_POLICIES = 100
"""How many may come by RPC."""
_MOST_ISSUES = 10
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")


class Turn(msgspec.Struct, frozen=True):
    """Who tuned a cluster last, and when by the store's clock."""

    tuner: str
    at_s: float
    cycle: int
    """Grows from cycle to cycle, also when the state was lost."""


_encode = msgspec.json.Encoder().encode
_turn = msgspec.json.Decoder(Turn).decode
_text = msgspec.json.Decoder(str).decode


def put_turn(cluster: str, turn: Turn, until_s: float) -> Put:
    """A turn, which is forgotten some time after it was the last."""
    return Put(TURN + cluster, _encode(turn), until_s)


class Shared(Replica):
    """Policies that came by RPC, and the clusters' turns."""

    def __init__(self) -> None:
        super().__init__(SCOPE)
        self.texts: dict[str, str] = {}
        self.turns: dict[str, Turn] = {}

    def take(self, key: str, version: int, value: bytes | None) -> None:
        kind, name = key[:2], key[2:]
        if value is None:
            (self.texts if kind == TEXT else self.turns).pop(name, None)
        elif kind == TEXT:
            self.texts[name] = _text(value)
        elif kind == TURN:
            self.turns[name] = _turn(value)


class Policies:
    """The policies in force in this process."""

    def __init__(self, store: Store, files: PolicyFiles) -> None:
        self.shared = Shared()
        self.alarms: tuple[str, ...] = ()
        """What is wrong, a sentence each; what it is about stays as it was."""
        self.generation = 0
        """Another one: something else is in force."""
        self._store = store
        self._files = files
        self._guard = threading.RLock()
        self._taken: tuple[PolicyTexts, dict[str, str]] | None = None
        self._written: dict[str, PolicyText] = {}
        """What the files say, whether it loads or not."""
        self._in_force: dict[str, PolicyText] = {}
        self._clusters = Clusters()
        self._programs: dict[tuple[str, ...], Program] = {}

    def read_from(self, files: PolicyFiles) -> None:
        """Read these files, now and from now on."""
        with self._guard:
            self._files = files
        self._read()

    def refresh(self) -> None:
        """Take in what files and RPC say now. Raises StateUnavailable."""
        with self.shared.lock:
            self.shared.refresh(self._store)
        self._read()

    def _read(self) -> None:
        with self._guard:
            with self.shared.lock:
                said = dict(self.shared.texts)
            taken = (self._files.read(), said)
            if taken != self._taken:
                self._take(*taken)
                self._taken = taken

    def program(self, cluster: str) -> Program | None:
        """The policies of a cluster together; None when there are none."""
        with self._guard:
            names = tuple(each for each in self._in_force if self._clusters.holds(each, cluster))
            if names and names not in self._programs:
                # Rules are known by their policy's name, wherever its file lies.
                sources = [Source(name, self._in_force[name].text) for name in names]
                self._programs[names] = policy.load(sources)
            return self._programs[names] if names else None

    def parameters(self, cluster: str) -> dict[str, Value]:
        """What rules see as ``policy.<name>`` in a cluster."""
        return self._clusters.parameters_of(cluster)

    def turns(self) -> dict[str, Turn]:
        """Who has tuned each cluster last, as far as this process knows."""
        return dict(self.shared.turns)

    def describe(self) -> dict[str, object]:
        """What is in force and where it was written, and what is wrong."""
        places = {name: each.place for name, each in self._in_force.items()}
        return {"policies": places, "alarms": list(self.alarms)}

    # By RPC

    def texts(self) -> dict[str, str]:
        """The policies in force, by name. Raises StateUnavailable."""
        self.refresh()
        return {name: each.text for name, each in self._in_force.items()}

    def set(self, name: str, text: str | None) -> None:
        """Put a policy in force in all workers; None takes it back, and the file's holds again.

        Raises:
            RequestError: there is no such name, or with all that is wrong with the policy.
            StateUnavailable: the store cannot be reached.
        """
        if not _NAME.fullmatch(name):
            raise RequestError("name", "must be 1 to 64 letters, digits, or one of _.-")
        if text is not None:
            try:
                policy.load([Source(name, text)])
            except PolicyError as error:
                raise RequestError("text", "; ".join(map(_told, error.issues))) from None
            self.refresh()
            if len(self.shared.texts.keys() | {name}) > MOST_POLICIES:
                raise RequestError("name", f"there are {MOST_POLICIES} policies; remove one")
        self._write([Put(TEXT + name, None if text is None else _encode(text))])

    def reset(self) -> None:
        """Take back all policies that came by RPC. Raises StateUnavailable."""
        self.refresh()
        with self.shared.lock:
            puts = [Put(TEXT + name, None) for name in self.shared.texts]
        self._write(puts)

    def _write(self, puts: list[Put]) -> None:
        self._store.write(SCOPE, [Transaction(puts)])
        self.refresh()

    # Loading

    def _take(self, read: PolicyTexts, said: Mapping[str, str]) -> None:
        alarms = list(read.problems)
        written = {each.name: each for each in read.policies}
        # While something cannot be read, nothing that was there is taken for gone.
        self._written = self._written | written if read.problems else written
        by_rpc = {name: PolicyText(name, f"RPC {name}", text) for name, text in said.items()}
        wanted = self._written | by_rpc
        loaded = {name: self._loaded(each, alarms) for name, each in wanted.items()}
        self._in_force = {name: each for name, each in sorted(loaded.items()) if each}
        if read.clusters is not None:
            self._clusters = self._read_clusters(read.clusters, alarms)
        elif not read.problems:
            self._clusters = Clusters()
        self._programs = {}
        self.generation += 1
        for alarm in alarms:
            if alarm not in self.alarms:
                LOG.warning("Tuning goes on with what it had before: %s", alarm)
        self.alarms = tuple(alarms)

    def _loaded(self, wanted: PolicyText, alarms: list[str]) -> PolicyText | None:
        """The policy if it loads, else the one before it."""
        if not _NAME.fullmatch(wanted.name):
            alarms.append(f"{wanted.place}: a policy's name has letters, digits and _.- only")
            return None
        try:
            policy.load([Source(wanted.place, wanted.text)])
        except PolicyError as error:
            alarms.extend(_alarms(error))
            return self._in_force.get(wanted.name)
        return wanted

    def _read_clusters(self, said: PolicyText, alarms: list[str]) -> Clusters:
        try:
            return tuner_clusters.read(Source(said.place, said.text))
        except PolicyError as error:
            alarms.extend(_alarms(error))
            return self._clusters


def _alarms(error: PolicyError) -> Iterator[str]:
    """The first issues of a policy, a line each."""
    yield from map(_told, error.issues[:_MOST_ISSUES])
    if len(error.issues) > _MOST_ISSUES:
        yield f"and {len(error.issues) - _MOST_ISSUES} more"


def _told(issue: Issue) -> str:
    """An issue without its source."""
    return str(issue).partition("\n")[0]
