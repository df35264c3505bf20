"""Policies: their system of record, and the use cases of administrators."""

import contextlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from scheduler_worker.backends.clock import SystemClock
from scheduler_worker.backends.settings import PolicyStoreSettings
from scheduler_worker.backends.tuning_policy_files import TuningPolicyFiles
from scheduler_worker.conf import Settings
from scheduler_worker.factories.state import open_state
from scheduler_worker.factories.units import build_sandboxes, compile_pipelines
from scheduler_worker.model.policies import ClusterPolicy
from scheduler_worker.policy_store import PolicyStore, StoredPolicy
from scheduler_worker.ports import Clock
from scheduler_worker.scheduling.ovirt.policies import DEFAULT_POLICY, LOCKED_POLICIES
from scheduler_worker.scheduling.selectors import RankSelector
from scheduler_worker.service.policies.administration import PolicyAdministration
from scheduler_worker.service.policies.cluster_policies import ClusterPolicies
from scheduler_worker.service.policies.pipelines import Pipelines
from scheduler_worker.service.state.replica import Fleet
from scheduler_worker.service.tuning.cycle import TuningSettings

if TYPE_CHECKING:
    from scheduler_worker.backends.sql.migrate import PolicySchema


def open_policy_schema(settings: PolicyStoreSettings) -> "PolicySchema":
    """The tables of the policies' system of record, in whatever version. Raises ConfigError."""
    from scheduler_worker.backends.sql.database import Database
    from scheduler_worker.backends.sql.migrate import PolicySchema

    return PolicySchema(Database(settings))


def open_policy_store(settings: PolicyStoreSettings) -> PolicyStore:
    """Open the policies' system of record, whose schema must be the newest.

    A SQLite file has one host and is upgraded here; other databases by their operator.

    Raises:
        ConfigError: the connection cannot be used, or the schema is not the newest.
        PolicyStoreUnavailable: the database cannot be reached.
    """
    # SQL's libraries are loaded by programs that use them, not by every worker.
    from scheduler_worker.backends.sql.migrate import PolicySchema
    from scheduler_worker.backends.sql.store import SqlPolicyStore

    store = SqlPolicyStore(settings)
    schema = PolicySchema(store.database)
    try:
        if schema.makes_itself():
            schema.upgrade()
        schema.check()
    except BaseException:
        store.close()
        raise
    return store


def check_policy_store(settings: PolicyStoreSettings) -> str | None:
    """Check what :func:`open_policy_store` needs, and make nothing; what that would make.

    Raises as it does.
    """
    from scheduler_worker.backends.sql.database import file_to_make

    if (path := file_to_make(settings)) is not None:
        return f"file {path}" if path.parent.exists() else f"directory {path.parent}"
    with contextlib.closing(open_policy_schema(settings)) as schema:
        if schema.makes_itself():
            return f"table in {schema.name}"
        schema.check()
    return None


def build_administration(
    store: PolicyStore, pipelines: Callable[[], Pipelines], in_force: ClusterPolicies, clock: Clock
) -> PolicyAdministration:
    """The use cases of administrators on a store; ``pipelines`` are the present ones."""
    return PolicyAdministration(
        store,
        catalogue=lambda: pipelines().catalogue,
        built_in=lambda: built_in_policies(pipelines().nova_policy),
        in_force=in_force,
        clock=clock,
        compile_on_trial=lambda document: pipelines().compile(document),
        default_selector=RankSelector.__name__,
    )


@contextlib.contextmanager
def policy_administration(settings: Settings) -> Iterator[PolicyAdministration]:
    """The use cases of administrators in a program of their own, on the configured store and state.

    Raises ConfigError, PolicyStoreUnavailable.
    """
    clock = SystemClock()
    sandboxes = build_sandboxes(settings)
    compiled = compile_pipelines(settings.options, sandboxes=sandboxes)
    with (
        contextlib.closing(sandboxes) if sandboxes else contextlib.nullcontext(),
        contextlib.closing(open_policy_store(settings.policy_store)) as store,
        contextlib.closing(open_state(settings.state, clock)) as state,
    ):
        fleet = Fleet(state, default_cluster=settings.default_cluster)
        in_force = ClusterPolicies(fleet, lambda: compiled)
        administration = build_administration(store, lambda: compiled, in_force, clock)
        administration.register_units()
        yield administration


def built_in_policies(nova: ClusterPolicy) -> list[StoredPolicy]:
    """The locked policies: ``nova`` and oVirt's, one of which is oVirt's default."""
    return [
        StoredPolicy(document=policy, is_locked=True, is_default=policy.name == DEFAULT_POLICY)
        for policy in (nova, *LOCKED_POLICIES)
    ]


def policy_files(settings: TuningSettings) -> TuningPolicyFiles:
    """The reader of the operator's tuning policies."""
    return TuningPolicyFiles(settings.policy_files, settings.clusters_file)
