"""Every error this project raises on purpose.

::

    SchedulerWorkerError
    |- RequestError            the request is invalid: names the field, the problem and the fix
    |  `- TextInvalid          a text in a language of ours is invalid; lists all of its issues
    |- ComputeHostMetricNotFound  a required metric is missing on a host that is to be weighed
    |- NoValidHost             no host passes: a result, not a failure; carries its Diagnosis
    |- Conflict                a concurrent change won; a retry may succeed
    |  |- StaleFencingToken    the lease ended before the commit; nothing was written
    |  |- PlacementConflict    other writers of a provider in Placement were always faster
    |  |- ClusterLockTimeout   the cluster's lock was not granted in time
    |  |- WorkerStops          the worker stops; another one may serve the same request
    |  `- DeadlineExceeded     the caller has given up, or would before it got the answer
    |- BackendError            something outside the process failed
    |  |- StateUnavailable     the shared state cannot be reached; no decision is made without it
    |  |- SourceUnavailable    a source of hosts, or a part of it, cannot be read now
    |  |- PolicyStoreUnavailable  the SQL database of policies cannot be reached, or refuses
    |  |- PlacementUnavailable  Placement is away, slow or broken; a write may have been done
    |  |- PlacementRefused     Placement does not accept the account, or answers nonsense
    |  |- BusUnavailable       the broker cannot be reached
    |  |  `- Undeliverable     the broker has no queue for the message
    |  |- ExternalUnitFailed   a unit in a sandbox failed, was too slow, or answered nonsense
    |  |- CallTimeout          no answer in time; whether the call had an effect is unknown
    |  |- NotServed            what answered is no worker that serves the call
    |  `- RemoteFailure        the called method raised an error
    |- AllocationUpdateFailed  an instance holds in Placement what its request does not expect
    |- MigrationRefused        a migration that was asked for will not be done; says why
    |- PowerRefused            a power action that was asked for will not be done; says why
    |- AdministrationError     a change by an administrator is refused; ``kind`` says why
    |  |- NotFound             there is no such policy, unit or cluster
    |  |- Invalid              a value breaks a rule: names the field, the problem and the fix
    |  |- Disabled             an option switches off what is asked for
    |  |- Ambiguous            several things have the name that is to mean one
    |  |- Incomplete           a mandatory field is missing
    |  |- Forbidden            the user lacks the right
    |  `- ConflictingChange    what is stored is in the way
    |     |- EditConflict      another edit was first; names whose, and which version is there
    |     |- NameTaken         another policy has the name
    |     `- InUse             it cannot be removed: names what uses it
    |- TuningPolicyError       a tuning policy is invalid; lists all of its issues
    |- ClusterPolicyError      a cluster policy is invalid; lists all of its problems
    |- ConfigError             the configuration is invalid: names the option and the fix
    `- InternalError           an unexpected error, whose details are in the worker's log

Each message is one sentence that says what happened and, where it helps, what to do. The table in
``rpc/wire_errors.py``, not these classes, has the form of an error on the wire.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scheduler_worker.model.decisions import Diagnosis
    from scheduler_worker.tuning.issues import Issue


class SchedulerWorkerError(Exception):
    """The base of every error of this package."""


class RequestError(SchedulerWorkerError):
    """Raised when a request is invalid; ``field`` is the path of the invalid field."""

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(f"{field}: {problem}")
        self.field = field
        self.problem = problem


class TextInvalid(RequestError):
    """Raised when a text in a language of the worker is invalid; ``issues`` are all of its
    issues.
    """

    def __init__(self, field: str, issues: Sequence[Issue]) -> None:
        super().__init__(field, "; ".join(issue.headline for issue in issues))
        self.issues = tuple(issues)


class NoValidHost(SchedulerWorkerError):
    """Raised when no host passes; ``diagnosis`` has how many hosts each filter rejected."""

    def __init__(self, reason: str, diagnosis: Diagnosis | None = None) -> None:
        super().__init__(f"No valid host was found. {reason}")
        self.reason = reason
        self.diagnosis = diagnosis


class ComputeHostMetricNotFound(SchedulerWorkerError):
    """Raised when a host does not report a metric and ``[metrics] required`` is set."""

    def __init__(self, host: str, node: str, name: str) -> None:
        super().__init__(f"Metric {name} could not be found on the compute host node {host}.{node}")
        self.host = host
        self.node = node
        self.name = name


class Conflict(SchedulerWorkerError):
    """Raised when a concurrent change won; the same request may succeed when retried."""


class StaleFencingToken(Conflict):
    """Raised when a commit has a token that is not the holder's any more; nothing was written."""


class PlacementConflict(Conflict):
    """Raised when a claim lost to other writers for as long as its caller waits; none is made."""

    def __init__(self, providers: str) -> None:
        super().__init__(
            f"Other writers in Placement were always faster at provider {providers}; try again."
        )


class ClusterLockTimeout(Conflict):
    """Raised when a cluster's lock was not granted within ``[cluster_lock] acquire_timeout``."""


class DeadlineExceeded(Conflict):
    """Raised when a request cannot be answered before its deadline; nothing is reserved."""


class WorkerStops(Conflict):
    """Raised for a request that waits when its worker stops; nothing is reserved."""


class BackendError(SchedulerWorkerError):
    """Raised when a service outside the process fails."""


class StateUnavailable(BackendError):
    """Raised when the shared state cannot be reached within the request's deadline."""


class SourceUnavailable(BackendError):
    """Raised when a source of hosts, or the part that was asked for, cannot be read now."""


class PolicyStoreUnavailable(BackendError):
    """Raised when the SQL database of policies fails; an edit is whole or not made."""


class PlacementUnavailable(BackendError):
    """Raised when Placement cannot be reached, is too slow or fails; a retry may succeed."""

    def __init__(self, problem: str) -> None:
        super().__init__(f"Placement cannot be used now: {problem}")


class PlacementRefused(BackendError):
    """Raised when Placement does not accept the account, cannot be found, or answers nonsense."""

    def __init__(self, problem: str) -> None:
        super().__init__(f"Placement refuses the worker: {problem}")


class BusUnavailable(BackendError):
    """Raised when a message could not be handed to the broker."""


class Undeliverable(BusUnavailable):
    """Raised when the broker will never take the message; says why.

    No queue, no such exchange, no permission, a name too long, a message too large.
    """


class ExternalUnitFailed(BackendError):
    """Raised when a unit that runs in a sandbox gives no answer that can be used."""


class CallTimeout(BackendError):
    """Raised when no answer came in time; it is unknown whether the call had an effect."""


class RemoteFailure(BackendError):
    """Raised when the called method raised an error; names it as it was on the wire."""

    def __init__(self, module: str, class_name: str, message: str) -> None:
        super().__init__(f"{class_name}: {message}")
        self.module = module
        self.class_name = class_name
        self.message = message


class NotServed(BackendError):
    """Raised when what answers a call is another service, or a worker of another release."""


class AllocationUpdateFailed(SchedulerWorkerError):
    """Raised when an instance holds something in Placement that is in the way of its claim."""

    def __init__(self, consumer: str, problem: str) -> None:
        super().__init__(f"Failed to update allocations for consumer {consumer}. Error: {problem}")
        self.consumer = consumer
        self.problem = problem


class MigrationRefused(SchedulerWorkerError):
    """Raised when a migration that was asked for will not be done; says why."""


class PowerRefused(SchedulerWorkerError):
    """Raised when a power action that was asked for will not be done; says why."""


class AdministrationError(SchedulerWorkerError):
    """Raised when a change of policies is refused; nothing was changed.

    ``kind`` is ``not-found``, ``invalid``, ``incomplete``, ``forbidden`` or ``conflict``.
    """

    kind: ClassVar[str]


class NotFound(AdministrationError):
    """Raised when there is no such policy, unit or cluster."""

    kind = "not-found"

    def __init__(self, what: str, name: str) -> None:
        super().__init__(f"There is no {what} {name!r}.")
        self.what = what
        self.name = name


class Invalid(AdministrationError):
    """Raised when a value breaks a rule; ``field`` is its path, such as ``filters.Memory``."""

    kind = "invalid"

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(f"{field}: {problem}")
        self.field = field
        self.problem = problem


class Disabled(AdministrationError):
    """Raised where an option switches off what is asked for."""

    kind = "not-found"


class Ambiguous(AdministrationError):
    """Raised when several things have the name that is to mean one."""

    kind = "conflict"

    def __init__(self, what: str, name: str, uuids: Sequence[str]) -> None:
        super().__init__(
            f"Several of kind {what} have the name {name!r}; use a uuid: {', '.join(uuids)}."
        )


class Incomplete(AdministrationError):
    """Raised when mandatory fields are missing; ``fields`` are their names."""

    kind = "incomplete"

    def __init__(self, what: str, fields: Sequence[str]) -> None:
        super().__init__(f"{what} needs {', '.join(fields)}.")
        self.what = what
        self.fields = tuple(fields)


class Forbidden(AdministrationError):
    """Raised when the user lacks the right to what was asked."""

    kind = "forbidden"


class ConflictingChange(AdministrationError):
    """Raised when what is stored is in the way of a change."""

    kind = "conflict"


class EditConflict(ConflictingChange):
    """Raised when another edit was first: by ``who``; ``version`` is there now."""

    def __init__(self, what: str, who: str, version: int) -> None:
        super().__init__(
            f"{what} was changed by {who or 'someone else'} in the meantime and is at version "
            f"{version}; read it again and repeat the change."
        )
        self.who = who
        self.version = version


class NameTaken(ConflictingChange):
    """Raised when another policy has the name, or one that differs in letter case only."""

    def __init__(self, name: str) -> None:
        super().__init__(f"Another policy has the name {name!r}; choose another one.")
        self.name = name


class InUse(ConflictingChange):
    """Raised when something is to be removed that others use; ``users`` are their names."""

    def __init__(self, what: str, users: Sequence[str]) -> None:
        super().__init__(f"{what} is used by {', '.join(users)} and cannot be removed.")
        self.users = tuple(users)


class TuningPolicyError(SchedulerWorkerError):
    """Raised when a tuning policy is invalid; ``issues`` are all of its issues."""

    def __init__(self, issues: Sequence[Issue]) -> None:
        super().__init__("\n".join(map(str, issues)))
        self.issues = tuple(issues)


class ClusterPolicyError(SchedulerWorkerError):
    """Raised when a cluster policy is invalid; ``problems`` has a sentence for each problem."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = tuple(problems)


class ConfigError(SchedulerWorkerError):
    """Raised when the configuration is invalid; names the option and the fix."""


class InternalError(SchedulerWorkerError):
    """Raised to a caller in place of an unexpected error, whose details are in the log."""
