"""Which cluster has which policy: attached by administrators, and put in force in the shared state.

The policy store is the system of record. After each write the document in force is put into the
shared state, in the same call; ``reconciler.py`` repairs what a crash between both has left.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

import msgspec
from msgspec import structs

from scheduler_worker.errors import Conflict, EditConflict, Invalid, NotFound, StateUnavailable
from scheduler_worker.model.host_records import ClusterName
from scheduler_worker.model.policies import NOVA, ClusterPolicy
from scheduler_worker.policy_store import NEW, Attachment, PolicyStore
from scheduler_worker.ports import Clock
from scheduler_worker.service.policies.audit import Actor, AuditLog
from scheduler_worker.service.policies.cluster_policies import ClusterPolicies
from scheduler_worker.service.policies.policy_library import PolicyLibrary
from scheduler_worker.service.policies.policy_rules import (
    check_parameters,
    cluster_parameters,
    declarations,
)
from scheduler_worker.wording import cut

Changed = TypeVar("Changed")
_TRIES = 50
"""How often a change is made whose caller expects no version, each time on what is stored then."""


class Attachments:
    """Reads and changes attachments, and puts in force what they say.

    Every method raises PolicyStoreUnavailable when the store fails.
    """

    def __init__(
        self,
        store: PolicyStore,
        library: PolicyLibrary,
        in_force: ClusterPolicies,
        audit_log: AuditLog,
        clock: Clock,
    ) -> None:
        self._store = store
        self._library = library
        self._in_force = in_force
        self._audit_log = audit_log
        self._clock = clock

    def clusters(self) -> list[str]:
        """The names of all clusters: those with hosts, and those that were attached before.

        Raises StateUnavailable.
        """
        return sorted({*self._in_force.clusters(), *(each.cluster for each in self.all())})

    def all(self) -> list[Attachment]:
        """Which cluster has which policy; clusters without one have :data:`NOVA`."""
        return self._store.attachments()

    def of(self, policy_id: str) -> list[Attachment]:
        """Those to the policy with this id."""
        return [each for each in self.all() if each.policy_id == policy_id]

    def attach(
        self,
        cluster: str,
        actor: Actor,
        *,
        policy: str | None = None,
        parameters: Mapping[str, str] | None = None,
        expected_version: int | None = None,
        is_new: bool = False,
    ) -> Attachment:
        """Attach a cluster to the policy with this id, or name in any letter case.

        Without ``policy`` the cluster keeps its policy. ``parameters`` are the cluster's own;
        without them it keeps its own under the same policy, and has the policy's under another.
        Those that only the policy before knows are dropped. A cluster that ``is_new`` need not have
        hosts yet.

        Raises:
            NotFound: there is no such policy, or no such cluster.
            Invalid: neither policy knows a parameter, its value does not fit, or the policy cannot
                be compiled.
            EditConflict: another attachment was first, of all tries if no version is expected.
            StateUnavailable: it is stored, and not in force yet.
        """

        def attach() -> Attachment:
            return self._attach(cluster, actor, policy, parameters, expected_version, is_new=is_new)

        return attach() if expected_version is not None else retried(attach)

    def _attach(
        self,
        cluster: str,
        actor: Actor,
        policy: str | None,
        parameters: Mapping[str, str] | None,
        expected_version: int | None,
        *,
        is_new: bool,
    ) -> Attachment:
        now = self._store.attachment(cluster)
        if now is None and not is_new and cluster not in self._in_force.clusters():
            raise NotFound("cluster", cluster)
        _check_cluster(cluster)
        version = now.version if now else NEW
        if expected_version not in {None, version}:
            raise EditConflict(
                f"The policy of cluster {cluster}", now.changed_by if now else "", version
            )
        found = self._library.policy_called(policy or (now.policy_id if now else NOVA))
        is_same = now is not None and now.policy_id == found.document.id
        own = parameters if parameters is not None else (now.parameters if now and is_same else {})
        self._check_known(found.document, own, now)
        attachment = Attachment(
            cluster=cluster,
            policy_id=found.document.id,
            is_built_in=found.is_locked,
            parameters=self._parameters(found.document, own),
            version=version + 1,
            changed_by=actor.user,
            changed_at_s=self._clock.time_s(),
        )
        if now is None or not _says_the_same(now, attachment):
            audit = self._audit_log.entry(
                actor, "cluster.attach", cluster, _text(now), _text(attachment)
            )
            self._store.attach(attachment, expected_version=version, audit=audit)
        else:
            attachment = now
        self.settle([cluster])
        return attachment

    def detach(self, cluster: str, actor: Actor) -> Attachment:
        """Return a cluster to the policy of the workers' options. Raises as :meth:`attach`."""
        return self.attach(cluster, actor, policy=NOVA, parameters={})

    def document_of(self, attachment: Attachment) -> ClusterPolicy | None:
        """The document in force for a cluster; None: the policy of the workers' options.

        Raises:
            NotFound: the policy is built in, and this version has none of that id.
        """
        if attachment.policy_id == NOVA:
            return None
        document = self._library.policy(attachment.policy_id).document
        own = cluster_parameters(document, attachment.parameters, self._library.units())
        return structs.replace(document, parameters=own)

    def put_in_force(self, cluster: str) -> bool:
        """Bring the shared state in line with the store; whether anything had to be written.

        A cluster that was never attached is left as it is: it may have a document by RPC.

        Raises:
            NotFound, RequestError: the policy cannot be compiled here; the old one stays in force.
            StateUnavailable, Conflict: the shared state cannot be written now.
        """
        if self._store.attachment(cluster) is None:
            return False

        def wanted() -> ClusterPolicy | None:
            attachment = self._store.attachment(cluster)
            return self.document_of(attachment) if attachment else None

        return self._in_force.settle(cluster, wanted)

    def settle(self, clusters: Iterable[str]) -> None:
        """Put what was stored just now in force in each cluster.

        What fails in some is raised at the end: StateUnavailable or Conflict.
        """
        failed: StateUnavailable | Conflict | None = None
        for cluster in clusters:
            try:
                self.put_in_force(cluster)
            except (StateUnavailable, Conflict) as error:
                failed = type(error)(
                    f"The change is stored, and takes effect in cluster {cluster} within a minute "
                    f"after the shared state can be written: {error}"
                )
        if failed is not None:
            raise failed

    def _check_known(
        self, document: ClusterPolicy, own: Mapping[str, str], now: Attachment | None
    ) -> None:
        """Raises Invalid for a parameter that neither the policy nor the one before knows."""
        units = self._library.units()
        known = {*document.parameters, *(now.parameters if now else ())}
        if now is not None and now.policy_id != document.id:
            with contextlib.suppress(NotFound):
                before = self._library.policy(now.policy_id).document
                known |= {*before.parameters, *declarations(before, units)}
        if document.id != NOVA:
            known |= declarations(document, units).keys()
        unknown = {name: value for name, value in own.items() if name not in known}
        if unknown and document.id == NOVA:
            name = cut(min(unknown))
            raise Invalid(f"properties.{name}", "the parameters of nova are the workers' options")
        check_parameters(document, unknown, units)

    def _parameters(self, document: ClusterPolicy, own: Mapping[str, str]) -> Mapping[str, str]:
        """The parameters of a cluster under a policy, checked."""
        if document.id == NOVA:  # its parameters are the workers' options
            return {}
        return self._library.for_cluster(document, own, self._library.units()).parameters


def retried(change: Callable[[], Changed]) -> Changed:
    """Make a change again where another one was first. Raises EditConflict if all were."""
    for _ in range(_TRIES - 1):
        with contextlib.suppress(EditConflict):
            return change()
    return change()


def _check_cluster(name: str) -> None:
    try:
        msgspec.convert(name, ClusterName)
    except msgspec.ValidationError:
        raise Invalid(
            "cluster",
            f"{cut(name)!r} is no name of a cluster: those begin with a letter or digit and "
            "consist of up to 128 letters, digits and _ . : -",
        ) from None


def _says_the_same(one: Attachment, other: Attachment) -> bool:
    return one.policy_id == other.policy_id and dict(one.parameters) == dict(other.parameters)


def _text(value: Attachment | None) -> str | None:
    return None if value is None else msgspec.json.encode(value, order="sorted").decode()
