"""``scheduler-worker-manage policy import-ovirt``: what an oVirt engine knows of policies.

It reads everything, shows everything, asks, and only then changes anything.

Units are found by their ids, which are oVirt's; one that users installed is found by its name and
kind. A unit that is evaluated here under every policy is left out, and so is the balance that moves
nothing.
"""

import argparse
import getpass
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, TypeVar

from msgspec import structs

from scheduler_worker.api import resource_types as types
from scheduler_worker.api.engine_client import Engine, EngineClient, EnginePolicy
from scheduler_worker.api.presentation import POSITIONS, parameters_of
from scheduler_worker.cli import policy_texts
from scheduler_worker.cli.commands import actor, confirmed, say
from scheduler_worker.cli.files import read_text
from scheduler_worker.cli.local_client import LocalClient, opened
from scheduler_worker.cli.policy_names import document_of, every_policy
from scheduler_worker.cli.policy_texts import PolicyChange, PolicyEntry
from scheduler_worker.cli.progress import doing
from scheduler_worker.conf import Settings
from scheduler_worker.errors import ClusterPolicyError, ConfigError, Invalid
from scheduler_worker.model.policies import (
    NOVA,
    BalanceUse,
    ClusterPolicy,
    FilterUse,
    SelectorUse,
    UnitUse,
    WeightUse,
    from_plain,
    to_plain,
)
from scheduler_worker.operations.policies import PolicyView
from scheduler_worker.scheduling.catalogue import UnitKind
from scheduler_worker.scheduling.selectors import RankSelector
from scheduler_worker.service.documents.library import Library
from scheduler_worker.service.documents.policy_rules import (
    check_parameters,
    cluster_parameters,
    declarations,
)
from scheduler_worker.service.documents.policy_units import PolicyUnits
from scheduler_worker.wording import listed


class PlannedAttachment(NamedTuple):
    """A cluster of the workers that is to have the policy of a cluster of the engine."""

    engine_cluster: str
    cluster: str
    policy: ClusterPolicy
    parameters: Mapping[str, str]
    before: str
    """The name of the policy that it has now."""


def run(arguments: argparse.Namespace, settings: Settings) -> int:
    """Do what the command says; returns the exit status."""
    cluster_map = _cluster_map(arguments.cluster_map)
    password = _password(arguments.password_file, arguments.user)
    who = actor(arguments.author)
    source = EngineClient(arguments.url, arguments.user, password, ca_file=arguments.ca_file)
    with source, doing("reading the engine's policies"):
        engine = source.read()
    external = (unit for unit in engine.units if not unit.internal)
    units = {text for unit in external for text in (unit.id, unit.name) if text}
    with opened(settings, units, is_change=not arguments.dry_run) as parts:
        administration, client = parts.administration, LocalClient(parts.services, who)
        stored = every_policy(client)
        notes: list[str] = []
        skip = arguments.skip_unknown_units
        changes, attachments = _plan(
            engine, administration.library(), stored, cluster_map, notes, skip=skip
        )
        say(*notes)
        policy_texts.show(client, changes)
        for there, cluster, policy, parameters, before in attachments:
            new = f"{policy.name}{_values(parameters, policy)}"
            say(f"cluster {cluster}: {before} -> {new}, as {there} there")
        if not changes and not attachments:
            say("All of this is stored already; there is nothing to change.")
            return 0
        if arguments.dry_run:
            say("Nothing was changed: this was a dry run.")
            return 0
        question = f"Change {len(changes)} policies and attach {len(attachments)} clusters?"
        if not arguments.yes and not confirmed(question):
            return 1
        policy_texts.make(client, changes)
        for _, cluster, policy, parameters, _ in attachments:
            # A cluster may be attached before its hosts report here for the first time.
            with doing(f"attaching {cluster}"):
                administration.attach(
                    cluster, who, policy=policy.id, parameters=parameters, is_new=True
                )
            say(f"attached: {cluster}")
    return 0


# Policies in the worker's form


NO_BALANCE = "38440000-8cf0-14bd-c43e-10b96e4ef00a"
"""The id of oVirt's balance that moves nothing."""

AnyUse = TypeVar("AnyUse", bound=UnitUse)


class Imported(NamedTuple):
    """A policy of an engine in the worker's form."""

    document: ClusterPolicy
    unknown: list[str]
    """The units that are not known here, as words for people; the document is without them."""
    notes: list[str]
    """What else was left out, and why."""


class EngineUnits:
    """Finds the unit that an engine means by an id."""

    def __init__(self, engine_units: Iterable[types.Unit], ours: PolicyUnits) -> None:
        self._of_engine = {unit.id: unit for unit in engine_units}
        self.ours = ours
        """The units that are known here."""
        mandatory = [entry for entry in ours.catalogue if entry.is_mandatory]
        self._mandatory = {entry.id_as(kind) for entry in mandatory for kind in entry.kinds}

    def name(self, unit_id: str, kind: UnitKind) -> str | None:
        """Our name of a unit; None if there is none of that kind."""
        unit = self.ours.find(unit_id)
        if unit is None:
            engine_unit = self._of_engine.get(unit_id)
            name = engine_unit.name if engine_unit and not engine_unit.internal else None
            unit = self.ours.used(name, kind) if name else None
        return unit.name if unit and unit.kind is kind and unit.is_enabled else None

    def is_mandatory(self, unit_id: str) -> bool:
        """Whether the unit is evaluated here under every policy."""
        return unit_id in self._mandatory

    def described(self, unit_id: str, kind: UnitKind) -> str:
        """A unit as an engine's administrator knows it."""
        unit = self._of_engine.get(unit_id)
        name = unit.name if unit and unit.name else "without a name"
        origin = "external " if unit and unit.internal is False else ""
        return f"the {origin}{kind} {name} ({unit_id})"


def imported(engine: EnginePolicy, units: EngineUnits, before: ClusterPolicy | None) -> Imported:
    """An engine's policy in the worker's form; in the order of the stored ``before`` if possible.

    Engines return filters and weights in any order, which means nothing to either.

    Raises Invalid: the engine's answer has no id, no name, or a value that no policy has.
    """
    policy = engine.policy
    unknown: list[str] = []
    notes: list[str] = []

    def known(member: types.Filter | types.Weight | types.Balance, kind: UnitKind) -> str | None:
        unit_id = _unit_id(policy, member)
        name = units.name(unit_id, kind)
        if name is not None or unit_id == NO_BALANCE:
            return name
        if units.is_mandatory(unit_id):
            notes.append(f"{units.described(unit_id, kind)}: is evaluated under every policy here")
        else:
            unknown.append(units.described(unit_id, kind))
        return None

    filters = [
        FilterUse(unit=name, position=POSITIONS.get(member.position or 0, "none"))
        for member in engine.filters
        if (name := known(member, UnitKind.FILTER)) is not None
    ]
    weights = [
        WeightUse(unit=name, factor=1.0 if weight.factor is None else weight.factor)
        for weight in engine.weights
        if (name := known(weight, UnitKind.WEIGHT)) is not None
    ]
    names = (known(balance, UnitKind.BALANCE) for balance in engine.balances)
    balances = [BalanceUse(unit=name) for name in names if name is not None]
    document = ClusterPolicy(
        id=policy.id or "",
        name=policy.name or "",
        version=1,
        description=policy.description or "",
        filters=_ordered(filters, before.filters if before else ()),
        weights=_ordered(weights, before.weights if before else ()),
        balance=balances[0] if balances else None,
        selector=SelectorUse(unit=RankSelector.__name__),
        parameters=parameters_of("properties", policy.properties) or {},
    )
    # A built-in policy may set what only a unit of a later version declares.
    declared = declarations(document, units.ours).keys() | (before.parameters if before else {})
    parameters = document.parameters
    others = sorted(parameters.keys() - declared)
    notes += [f"the property {name}: no unit of it that is known here has it" for name in others]
    order = [*(before.parameters if before else ()), *sorted(parameters)]
    kept = {name: parameters[name] for name in order if name in parameters and name in declared}
    return Imported(_checked(structs.replace(document, parameters=kept)), unknown, notes)


def _checked(document: ClusterPolicy) -> ClusterPolicy:
    try:
        return from_plain(to_plain(document))
    except ClusterPolicyError as error:
        raise Invalid(f"the engine's policy {document.name or document.id}", str(error)) from None


def _unit_id(policy: types.Policy, member: types.Filter | types.Weight | types.Balance) -> str:
    unit = member.scheduling_policy_unit
    unit_id = (unit.id if unit else None) or member.id
    if not unit_id:
        raise Invalid(f"the engine's policy {policy.name}", "one of its units has no id")
    return unit_id


def _ordered(uses: Sequence[AnyUse], before: Sequence[UnitUse]) -> tuple[AnyUse, ...]:
    places = {use.unit: place for place, use in enumerate(before)}
    return tuple(sorted(uses, key=lambda use: places.get(use.unit, len(places))))


# The plan


def _plan(
    engine: Engine,
    library: Library,
    stored: Sequence[PolicyView],
    clusters: Mapping[str, str],
    notes: list[str],
    *,
    skip: bool,
) -> tuple[list[PolicyChange], list[PlannedAttachment]]:
    """What is to be done. Raises Invalid where units are unknown, unless they are skipped."""
    views = {view.id: view for view in stored}
    known = {view.id: document_of(view) for view in stored}
    units = EngineUnits(engine.units, library.units)
    imports: list[Imported] = []
    for policy in engine.policies:
        policy_id = policy.policy.id or ""
        before = known.get(policy_id)
        read = imported(policy, units, before)
        if before is not None and views[policy_id].is_locked:
            notes += _comparison(before, read)
        else:
            imports.append(read)
    _refuse_unknown(imports, notes, skip=skip)
    changes = policy_texts.between(stored, [PolicyEntry(read.document, True) for read in imports])
    known |= {read.document.id: read.document for read in imports}
    return changes, list(_attachments(engine, library, clusters, known, notes))


def _refuse_unknown(imports: Sequence[Imported], notes: list[str], *, skip: bool) -> None:
    for read in imports:
        notes += [f"{read.document.name}: left out is {note}" for note in read.notes]
    missing = [(read.document.name, unit) for read in imports for unit in read.unknown]
    if missing and not skip:
        uses = "; ".join(f"policy {policy} uses {unit}" for policy, unit in missing)
        raise Invalid(
            "units",
            f"{uses}. They are not known here: install units of these names, or leave them out "
            "with --skip-unknown-units",
        )
    notes += [f"{policy}: left out is {unit}: it is not known here" for policy, unit in missing]


def _comparison(built_in: ClusterPolicy, engine_policy: Imported) -> Iterator[str]:
    """How a policy that comes with the worker differs from the engine's."""
    shown = structs.replace(
        engine_policy.document,
        name=built_in.name,
        version=built_in.version,
        description=built_in.description,
        selector=built_in.selector,
    )
    name = built_in.name
    lines = [*policy_texts.difference(built_in, shown, f"{name} here", f"{name} there")]
    if lines:
        yield f"{name} comes with the worker, and differs from the engine's:"
        yield from lines
    for unit in engine_policy.unknown:
        yield f"{name}: the engine's uses {unit}, which is not known here"


def _attachments(
    engine: Engine,
    library: Library,
    cluster_map: Mapping[str, str],
    policies: Mapping[str, ClusterPolicy],
    notes: list[str],
) -> Iterator[PlannedAttachment]:
    engine_clusters = {cluster.name or "": cluster for cluster in engine.clusters}
    if unknown := sorted(set(cluster_map) - set(engine_clusters)):
        raise ConfigError(
            f"--cluster-map: the engine has no cluster {unknown[0]!r}; "
            f"it has {listed(sorted(engine_clusters), 20)}"
        )
    now, units = library.documents.attachments, library.units
    for name in sorted(engine_clusters):
        policy = policies.get(_policy_id(engine_clusters[name], engine))
        if policy is None:
            raise Invalid(f"the engine's cluster {name}", "has a policy that it does not list")
        properties = engine_clusters[name].custom_scheduling_policy_properties
        own = cluster_parameters(policy, parameters_of(name, properties) or {}, units)
        cluster = cluster_map.get(name)
        if cluster is None:
            notes.append(
                f"cluster {name} of the engine has the policy {policy.name}{_values(own, policy)}; "
                f"--cluster-map {name}=WORKERS attaches one"
            )
            continue
        check_parameters(policy, own, units, known=policy.parameters)
        before = now.get(cluster)
        if before and (before.policy_id, dict(before.parameters)) == (policy.id, own):
            continue
        old = policies.get(before.policy_id if before else NOVA)
        was = old.name if old else "a policy that is gone"
        yield PlannedAttachment(name, cluster, policy, own, was)


def _policy_id(cluster: types.Cluster, engine: Engine) -> str:
    """The id of a cluster's policy; one that names none has the engine's default."""
    if cluster.scheduling_policy is not None and cluster.scheduling_policy.id:
        return cluster.scheduling_policy.id
    defaults = (policy.policy.id for policy in engine.policies if policy.policy.default_policy)
    return next(defaults, None) or ""


def _values(own: Mapping[str, str], policy: ClusterPolicy) -> str:
    """The values that differ from the policy's, such as `` with HighUtilization=70``."""
    differing = [
        f"{name}={own[name]}" for name in sorted(own) if own[name] != policy.parameters.get(name)
    ]
    return f" with {', '.join(differing)}" if differing else ""


# Arguments


def _cluster_map(pairs: Sequence[str]) -> dict[str, str]:
    """The engine's name -> the workers' name. Raises ConfigError."""
    cluster_map: dict[str, str] = {}
    for pair in pairs:
        engine_name, equals, own_name = pair.partition("=")
        own_name = own_name if equals else engine_name
        if not engine_name or not own_name:
            raise ConfigError(f"--cluster-map: {pair!r} is not ENGINES=WORKERS or NAME")
        if engine_name in cluster_map or own_name in cluster_map.values():
            raise ConfigError(f"--cluster-map: {pair!r} names a cluster for the second time")
        cluster_map[engine_name] = own_name
    return cluster_map


def _password(file: Path | None, user: str) -> str:
    if file is not None:
        lines = read_text(file).splitlines()
        if not lines or not lines[0]:
            raise ConfigError(f"--password-file: {file}: its first line is empty")
        return lines[0]
    if not sys.stdin.isatty():
        raise ConfigError("There is no terminal to ask for the password on; pass --password-file")
    return getpass.getpass(f"Password of {user}: ")
