"""What is tried on a snapshot: another policy, hosts that take no more instances."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from msgspec import structs

from scheduler_worker.errors import RequestError
from scheduler_worker.model.policies import ClusterPolicy
from scheduler_worker.service.replay.snapshot import Snapshot, hosts_in
from scheduler_worker.service.state import records


def with_policies(snapshot: Snapshot, policies: Mapping[str, ClusterPolicy]) -> Snapshot:
    """With these policies in force, by cluster. Raises RequestError for an unknown cluster."""
    scopes = dict(snapshot.scopes)
    for cluster, policy in policies.items():
        if cluster not in snapshot.clusters:
            known = ", ".join(sorted(snapshot.clusters)) or "none"
            raise RequestError("cluster", f"there is no cluster {cluster!r:.80}; known are {known}")
        put = records.put_policy(policy)
        scopes[cluster] = {**scopes[cluster], put.key: put.value or b""}
    return structs.replace(snapshot, scopes=scopes)


def drained(snapshot: Snapshot, hosts: Collection[str]) -> Snapshot:
    """With these hosts, by name, disabled. Raises RequestError for one that is not there."""
    scopes, missing = dict(snapshot.scopes), set(hosts)
    for cluster, found in snapshot.clusters.items() if hosts else ():
        changed = dict(found)
        for host in hosts_in(found):
            if host.host in hosts:
                missing.discard(host.host)
                service = {**host.service, "disabled": True}
                put = records.put_host(structs.replace(host, service=service))
                changed[put.key] = put.value or b""
        scopes[cluster] = changed
    if missing:
        raise RequestError("host", f"there is no host {min(missing)!r:.80}")
    return structs.replace(snapshot, scopes=scopes)
