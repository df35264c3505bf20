"""What there was before there is a book: policies that clusters have in force, and enabled units.

Earlier releases kept there what was attached over RPC, and under ``@audit`` who attached it.
"""

import uuid
from collections.abc import Collection, Mapping

from msgspec import structs

from scheduler_worker.conversion import json_reader
from scheduler_worker.model.audit import AuditEntry
from scheduler_worker.model.documents import Attachment, Documents, StoredPolicy, StoredUnit
from scheduler_worker.model.policies import ClusterPolicy
from scheduler_worker.service.documents.book import Edited
from scheduler_worker.service.documents.library import Libraries
from scheduler_worker.service.documents.policy_units import installed_units
from scheduler_worker.service.state.replica import Fleet, RecordKind, Replica

_AUDIT = "@audit"


def read(fleet: Fleet, libraries: Libraries, without: Collection[str]) -> Edited:
    """Documents of all clusters but these, and entries of the audit. Raises StateUnavailable."""
    in_force: dict[str, ClusterPolicy] = {}
    for cluster in fleet.read_names():
        replica = fleet.cluster(cluster)
        with replica.reading(fleet.store):
            if replica.policy is not None and cluster not in without:
                in_force[cluster] = replica.policy
    catalogue, enabled = libraries.catalogue(), fleet.globals.units
    units = {unit.id: unit for unit in installed_units(catalogue.limited_to(enabled))}
    built_in = libraries.of(Documents()).built_in
    return Edited(documents(in_force, built_in, units), _entries(fleet))


def documents(
    in_force: Mapping[str, ClusterPolicy],
    built_in: Collection[str],
    units: Mapping[str, StoredUnit],
) -> Documents:
    """Policies and attachments of what is in force, by cluster; no decision changes by it. Pure.

    Of one policy in several forms the newest keeps its id. Another one gets an id of its own, as
    does a policy whose name another one has; the name gets the cluster's behind it.
    """
    policies: dict[str, StoredPolicy] = {}
    attachments: dict[str, Attachment] = {}
    by_version = sorted(in_force.items(), key=lambda item: (-item[1].version, item[0]))
    for cluster, document in by_version:
        policy_id = document.id
        if policy_id not in built_in:
            policy_id = _shelved(policies, document, cluster)
        attachments[cluster] = Attachment(
            cluster=cluster,
            policy_id=policy_id,
            is_built_in=policy_id in built_in,
            parameters=document.parameters,
        )
    return Documents(policies, attachments, units)


def _shelved(policies: dict[str, StoredPolicy], document: ClusterPolicy, cluster: str) -> str:
    """The id of the policy among ``policies``, where it is put unless one like it is there."""
    known = policies.get(document.id)
    if known is not None:
        same = structs.replace(known.document, parameters=document.parameters)
        if same == document:
            return document.id
        document = structs.replace(document, id=str(uuid.uuid4()))
    names = {policy.document.name.casefold() for policy in policies.values()}
    if document.name.casefold() in names:
        document = structs.replace(document, name=f"{document.name} ({cluster})")
    policies[document.id] = StoredPolicy(document=document)
    return document.id


def _entries(fleet: Fleet) -> list[AuditEntry]:
    kept = RecordKind("", json_reader(AuditEntry))
    with Replica(_AUDIT, kept).reading(fleet.store):
        return [entry for _, entry in sorted(kept.items())]
