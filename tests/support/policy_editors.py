"""Edits a policy in a SQL policy store from a process of its own: ``URL NAME COUNT``.

Each edit reads the policy and stores the next version; one that loses a race is repeated. A line
with the version is printed once it is stored. COUNT 0 edits until the process is killed.
"""

from __future__ import annotations

import itertools
import subprocess
import sys

from scheduler_worker.backends.settings import PolicyStoreSettings
from scheduler_worker.backends.sql.store import SqlPolicyStore
from scheduler_worker.errors import EditConflict
from scheduler_worker.model.policies import ClusterPolicy, FilterUse, Parameters, WeightUse
from scheduler_worker.policy_store import AuditEntry, StoredPolicy

POLICY = "edited"
MOST_UNITS = 7


def document(version: int) -> ClusterPolicy:
    """A policy whose every part follows from its version, so that a mixture of two is seen."""
    names = [f"unit {number}" for number in range(1 + version % MOST_UNITS)]
    values: Parameters = {"of": str(version)}
    return ClusterPolicy(
        id=POLICY,
        name=f"policy {version}",
        version=version,
        filters=tuple(FilterUse(unit=name, parameters=values) for name in names),
        weights=tuple(WeightUse(unit=name, factor=float(version)) for name in names),
        parameters=values,
    )


def audit(version: int, user: str = "somebody") -> AuditEntry:
    return AuditEntry(at_s=1.0, user=user, action="policy.update", subject=str(version))


def edit(store: SqlPolicyStore, name: str) -> int:
    """Store the next version; returns it."""
    while True:
        now = store.policy(POLICY)
        assert now is not None
        version = now.document.version + 1
        made = StoredPolicy(document=document(version), changed_by=name)
        try:
            store.replace(made, expected_version=version - 1, audit=audit(version, name))
        except EditConflict:
            continue
        return version


def start(url: str, name: str, count: int) -> subprocess.Popen[str]:
    """The process, whose output is the versions that it stored."""
    command = [sys.executable, "-m", "tests.support.policy_editors", url, name, str(count)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def main() -> None:
    url, name, count = sys.argv[1:]
    store = SqlPolicyStore(PolicyStoreSettings(connection=url, lock_timeout_s=60.0))
    for _ in range(int(count)) if int(count) else itertools.count():
        print(edit(store, name), flush=True)


if __name__ == "__main__":
    main()
