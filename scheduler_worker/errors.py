"""Every error this project raises on purpose.

Each message is one sentence that says what happened and, where it helps, what to do. The table in
``rpc/wire_errors.py``, not these classes, has the form of an error on the wire.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scheduler_worker.model.decisions import Diagnosis
    from scheduler_worker.model.issues import Issue


class SchedulerWorkerError(Exception):
    """The base of every error of this package."""


class RequestError(SchedulerWorkerError):
    """Raised when a request is invalid; ``field`` is the path of the invalid field."""

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(f"{field}: {problem}")
        self.field = field
        self.problem = problem


class TextInvalid(RequestError):
    """Raised when a text in a language of the worker is invalid; ``issues`` are all of them."""

    def __init__(self, field: str, issues: Sequence[Issue]) -> None:
        super().__init__(field, "; ".join(issue.headline for issue in issues))
        self.issues = tuple(issues)


class NoValidHost(SchedulerWorkerError):
    """Raised when no host passes, which is a result and no failure.

    ``diagnosis`` has how many hosts each filter rejected.
    """

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
    """Raised for a request that waits when its worker stops; another one may serve it."""


class BackendError(SchedulerWorkerError):
    """Raised when a service outside the process fails."""

    service = ""
    """What failed, where the message may have its address, which not every caller may know."""


class StateUnavailable(BackendError):
    """Raised when the shared state, without which nothing is decided, cannot be reached in time."""

    service = "shared state"


class StateAway(StateUnavailable):
    """Raised when the state does not serve now and may soon: it restarts, loads or fails over."""


class StateLost(StateAway):
    """Raised when no server of the state answers this worker; other workers may reach it."""


class SourceUnavailable(BackendError):
    """Raised when a source of hosts, or the part that was asked for, cannot be read now."""

    service = "source of hosts"


class ArchiveUnavailable(BackendError):
    """Raised when the SQL archive of policies cannot be used now; the book is not affected."""

    service = "archive of policies"


class PlacementUnavailable(BackendError):
    """Raised when Placement cannot be reached, is too slow or fails; a retry may succeed."""

    service = "Placement"

    def __init__(self, problem: str) -> None:
        super().__init__(f"Placement cannot be used now: {problem}")


class PlacementRefused(BackendError):
    """Raised when Placement does not accept the account, cannot be found, or answers nonsense."""

    service = "Placement"

    def __init__(self, problem: str) -> None:
        super().__init__(f"Placement refuses the worker: {problem}")


class BusUnavailable(BackendError):
    """Raised when a message could not be handed to the broker."""

    service = "message bus"


class Undeliverable(BusUnavailable):
    """Raised when the broker will never take the message; says why.

    No such exchange, no permission, a name too long, a message too large.
    """


class NobodyListens(Undeliverable):
    """Raised when no queue takes the message; its consumer may be about to return."""


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
    """Raised when a change of policies is refused; nothing was changed."""


class NotFound(AdministrationError):
    """Raised when there is no such policy, unit or cluster."""

    def __init__(self, what: str, name: str) -> None:
        super().__init__(f"There is no {what} {name!r}.")
        self.name = name


class Invalid(AdministrationError):
    """Raised when a value breaks a rule; ``field`` is its path, such as ``filters.Memory``."""

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(f"{field}: {problem}")
        self.field = field
        self.problem = problem


class Disabled(AdministrationError):
    """Raised where an option switches off what is asked for."""


class Ambiguous(AdministrationError):
    """Raised when several things have the name that is to mean one."""

    def __init__(self, what: str, name: str, uuids: Sequence[str]) -> None:
        super().__init__(
            f"Several of kind {what} have the name {name!r}; use a uuid: {', '.join(uuids)}."
        )


class Incomplete(AdministrationError):
    """Raised when mandatory fields are missing; ``fields`` are their names."""

    def __init__(self, what: str, fields: Sequence[str]) -> None:
        super().__init__(f"{what} needs {', '.join(fields)}.")
        self.what = what
        self.fields = tuple(fields)


class Forbidden(AdministrationError):
    """Raised when the user lacks the right to what was asked."""


class ConflictingChange(AdministrationError):
    """Raised when what is stored is in the way of a change."""


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
