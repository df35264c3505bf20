"""``scheduler-worker-manage policy import-ovirt``: what an oVirt engine knows of policies.

It reads everything, shows everything, asks, and only then changes anything.
"""

import argparse
import getpass
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from msgspec import structs

from scheduler_worker.api import resource_types as types
from scheduler_worker.api.engine_client import Engine, EngineClient
from scheduler_worker.api.engine_policies import EngineUnits, Imported, imported
from scheduler_worker.api.presentation import parameters_of
from scheduler_worker.cli import policy_texts
from scheduler_worker.cli.commands import actor, confirmed, say
from scheduler_worker.cli.files import read_text
from scheduler_worker.cli.policy_texts import Given, PolicyChange
from scheduler_worker.conf import Settings
from scheduler_worker.errors import ConfigError, Invalid
from scheduler_worker.factories import policy_administration
from scheduler_worker.model.policies import NOVA, ClusterPolicy
from scheduler_worker.service.policies.administration import PolicyAdministration
from scheduler_worker.service.policies.policy_rules import check_parameters, cluster_parameters
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
    client = EngineClient(arguments.url, arguments.user, password, ca_file=arguments.ca_file)
    with client:
        engine = client.read()
    with policy_administration(settings) as administration:
        notes: list[str] = []
        changes, attachments = _plan(
            engine, administration, cluster_map, notes, skip=arguments.skip_unknown_units
        )
        say(*notes)
        policy_texts.show(administration, changes)
        for there, cluster, policy, parameters, before in attachments:
            new = f"{policy.name}{_values(parameters, policy)}"
            say(f"cluster {cluster}: {before} -> {new}, as {there} there")
        if not changes and not attachments:
            say("The store has all of this already; there is nothing to change.")
            return 0
        if arguments.dry_run:
            say("Nothing was changed: this was a dry run.")
            return 0
        question = f"Change {len(changes)} policies and attach {len(attachments)} clusters?"
        if not arguments.yes and not confirmed(question):
            return 1
        who = actor(arguments.author)
        policy_texts.make(administration, changes, who)
        for _, cluster, policy, parameters, _ in attachments:
            # A cluster may be attached before its hosts report here for the first time.
            administration.attachments.attach(
                cluster, who, policy=policy.id, parameters=parameters, is_new=True
            )
            say(f"attached: {cluster}")
    return 0


# The plan


def _plan(
    engine: Engine,
    administration: PolicyAdministration,
    clusters: Mapping[str, str],
    notes: list[str],
    *,
    skip: bool,
) -> tuple[list[PolicyChange], list[PlannedAttachment]]:
    """What is to be done. Raises Invalid where units are unknown, unless they are skipped."""
    stored = administration.library.policies()
    by_id = {stored_policy.document.id: stored_policy for stored_policy in stored}
    units = EngineUnits(engine.units, administration.library.units())
    imports: list[Imported] = []
    for policy in engine.policies:
        before = by_id.get(policy.policy.id or "")
        read = imported(policy, units, before.document if before else None)
        if before is not None and before.is_locked:
            notes += _comparison(before.document, read)
        else:
            imports.append(read)
    _refuse_unknown(imports, notes, skip=skip)
    changes = policy_texts.between(stored, [Given(read.document, True) for read in imports])
    known = {stored_policy.document.id: stored_policy.document for stored_policy in stored}
    known |= {read.document.id: read.document for read in imports}
    return changes, list(_attachments(engine, administration, clusters, known, notes))


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
    lines = policy_texts.difference(built_in, shown, f"{name} here", f"{name} there")
    if text := "".join(lines).rstrip("\n"):
        yield f"{name} comes with the worker, and differs from the engine's:\n{text}"
    for unit in engine_policy.unknown:
        yield f"{name}: the engine's uses {unit}, which is not known here"


def _attachments(
    engine: Engine,
    administration: PolicyAdministration,
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
    now = {attachment.cluster: attachment for attachment in administration.attachments.all()}
    units = administration.library.units()
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
        yield PlannedAttachment(
            name, cluster, policy, own, old.name if old else "a policy that is gone"
        )


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
