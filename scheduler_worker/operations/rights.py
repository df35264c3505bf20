"""Who may do what: oslo.policy rules over the roles that a caller has in a cluster or the system.

A rule of a policy is to hold in *every* cluster that it is attached to, or in the system; if it is
attached to none, in any cluster. What a caller may not do is recorded in the audit.

A rule sees ``role`` (a role with all that it includes), ``system_scope`` (``all`` for a role of the
system), ``cluster`` (of a role in a cluster) and ``user``; ``%(cluster)s`` is the cluster that
the action is about. Of a Keystone token it sees ``role``, ``user``, and ``user_id``,
``system_scope``, ``project_id``, ``project_name`` and ``domain_id``, as far as the token has them.
"""

import os
from collections.abc import Collection, Iterator, Mapping
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from oslo_config import cfg

from scheduler_worker.errors import ConfigError, Forbidden
from scheduler_worker.operations.callers import ROLES, Caller, Right
from scheduler_worker.operations.reread import RereadFile
from scheduler_worker.service.documents.audit import Audit
from scheduler_worker.wording import listed

if TYPE_CHECKING:
    from oslo_policy import policy

_EDITOR = "rule:policy_editor"
_ADMINISTRATOR = "role:administrator and rule:in_scope"
_SYSTEM = "rule:system_administrator"
_SYSTEM_EDITOR = "role:policy_editor and system_scope:all"
_RULES = (
    ("in_scope", "system_scope:all or cluster:%(cluster)s", ""),
    ("reader", "role:reader and rule:in_scope", ""),
    ("policy_editor", "role:policy_editor and rule:in_scope", ""),
    ("system_administrator", "role:administrator and system_scope:all", ""),
    (Right.READ.value, "rule:reader", "Read units, policies and clusters"),
    (Right.CREATE.value, _EDITOR, "Create a policy"),
    (Right.EDIT.value, _EDITOR, "Edit a policy, for each of its clusters"),
    (Right.DELETE.value, _EDITOR, "Delete a policy"),
    (Right.ATTACH.value, _EDITOR, "Attach a policy to a cluster"),
    (Right.REHEARSE.value, _EDITOR, "Begin and cancel rehearsals"),
    (Right.DELETE_UNIT.value, _SYSTEM, "Delete an external unit"),
    (Right.SWITCH_UNIT.value, _SYSTEM, "Enable and disable an external unit"),
    (Right.RELEASE.value, _ADMINISTRATOR, "Release a reservation"),
    (Right.SWITCH_BALANCING.value, _ADMINISTRATOR, "Set the mode of a cluster's balance"),
    (Right.EDIT_TUNING.value, _SYSTEM_EDITOR, "Set and withdraw tuning policies"),
    (Right.DRAIN.value, _SYSTEM, "Drain and resume workers, dismiss lost ones"),
    (Right.READ_AUDIT.value, _SYSTEM, "Read the audit"),
)
"""Name, check and description of each rule."""


class Rights:
    """Evaluates the rules; an operator's file, read again when it changes, may replace some."""

    def __init__(self, policy_file: str | None = None) -> None:
        """Raises ConfigError where the file cannot be read or has a rule that is no rule."""
        if policy_file:
            self._enforcer = RereadFile(Path(policy_file), _enforcer).current
        else:
            self._enforcer = cache(partial(_enforcer, None))

    def may(self, caller: Caller, action: Right, clusters: Collection[str] | None = None) -> bool:
        """Whether the caller may do it in each of these clusters; None or none: anywhere."""
        held = list(_held(caller))
        if not clusters:
            return any(self._permits(role, action, role.get("cluster")) for role in held)
        return all(any(self._permits(role, action, name) for role in held) for name in clusters)

    def _permits(self, credentials: Mapping[str, Any], action: Right, cluster: str | None) -> bool:
        target = {} if cluster is None else {"cluster": cluster}
        return bool(self._enforcer().enforce(action.value, target, dict(credentials)))


class Access:
    """Lets a caller do something, or not."""

    def __init__(self, rights: Rights, audit: Audit) -> None:
        self._rights = rights
        self.audit = audit

    def permits(self, caller: Caller, action: Right) -> bool:
        """Whether the caller may do it somewhere; records nothing, and waits for nobody."""
        return self._rights.may(caller, action)

    def check(
        self, caller: Caller, action: Right, subject: str, clusters: Collection[str] | None = None
    ) -> None:
        """Raises Forbidden unless the caller may do it in each of the clusters; None: anywhere."""
        if self._rights.may(caller, action, clusters):
            return
        where = f" in {', '.join(sorted(clusters))}" if clusters else ""
        lack = f"the user has no right to {action.value}"
        self.audit.refused(caller.actor, action.value, subject, lack + where)
        raise Forbidden(
            f"User {caller.name} is not authorized: {lack}{self._held(caller, action)}."
        )

    def _held(self, caller: Caller, action: Right) -> str:
        """The clusters for which the caller has the right; the answer names no other cluster,
        unlike the audit.
        """
        own = {grant.cluster for grant in caller.grants if grant.cluster is not None}
        held = sorted(cluster for cluster in own if self._rights.may(caller, action, [cluster]))
        return f", except in {listed(held)}" if held else ""


def _enforcer(policy_file: Path | None) -> "policy.Enforcer":
    """The default rules, and the rules of the file. Raises ConfigError."""
    # Most workers are never asked for what needs a right, and oslo.policy is slow to import.
    from oslo_policy import policy

    conf = cfg.ConfigOpts()
    conf([], project="scheduler_worker", default_config_files=[], default_config_dirs=[])
    path = str(policy_file or os.devnull)  # an empty file: the default rules alone
    enforcer = policy.Enforcer(conf, policy_file=path, fallback_to_json_file=False)
    enforcer.suppress_deprecation_warnings = True
    enforcer.register_defaults([policy.RuleDefault(*rule) for rule in _RULES])
    try:
        enforcer.load_rules(force_reload=True)
        enforcer.check_rules(raise_on_violation=True)
    except Exception as error:  # whatever the parser of the file raises
        raise ConfigError(f"[api] policy_file: {policy_file}: {error}") from None
    if policy_file and not enforcer.policy_path:
        raise ConfigError(f"[api] policy_file: {policy_file}: there is no such file")
    enforcer.use_conf = False  # else it reads a changed file unchecked, and a lost one as empty
    return enforcer


def _held(caller: Caller) -> Iterator[dict[str, Any]]:
    """The credentials of a caller: for each role, in its scope, or of a token."""
    if caller.scope:
        yield dict(caller.scope)
    for grant in caller.grants:
        where = {"system_scope": "all"} if grant.cluster is None else {"cluster": grant.cluster}
        roles = list(ROLES[: ROLES.index(grant.role) + 1])
        yield {"user": caller.name, "roles": roles, **where}
