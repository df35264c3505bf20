"""Every error this project raises on purpose.

::

    SchedulerWorkerError
    |- RequestError            the caller's fault: says which field, why, and what would do
    |- ComputeHostMetricNotFound  a required metric is missing on a host that was to be weighed
    |- NoValidHost             an answer, not a fault: no host passes; carries its Diagnosis
    |- Conflict                somebody else was first; trying again may help
    |  |- StaleFencingToken    the hold ended before the commit; nothing was written
    |  `- ClusterLockTimeout   the cluster's lock was not granted in time
    |- BackendError            the world's fault
    |  |- StateUnavailable     the shared state cannot be reached; no decision is made without it
    |  |- BusUnavailable       the broker is away
    |  |  `- Undeliverable     the broker is there, and nobody listens to that topic
    |  |- CallTimeout          no answer came in time; whether the call had an effect is unknown
    |  `- RemoteFailure        the called method failed over there
    |- PolicyError             the author's fault: a tuning policy, with everything wrong in it
    |- ConfigError             the operator's fault: names the option and the fix
    `- InternalError           ours; the details stay in the worker's log

Each message is one sentence that says what happened and, where it helps, what to do. How an error
looks on the wire is a table in ``rpc/wire_errors.py``, never a matter of these classes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scheduler_worker.model.decisions import Diagnosis
    from scheduler_worker.tuning.issues import Issue


class SchedulerWorkerError(Exception):
    """Raised for everything below; catch it to catch all of ours."""


class RequestError(SchedulerWorkerError):
    """Raised when a message cannot be served as it is; ``field`` is the path of the culprit."""

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(f"{field}: {problem}")
        self.field = field
        self.problem = problem


class NoValidHost(SchedulerWorkerError):
    """Raised when no host passes; ``diagnosis`` tells which filter removed how many."""

    def __init__(self, reason: str, diagnosis: Diagnosis | None = None) -> None:
        super().__init__(f"No valid host was found. {reason}")
        self.reason = reason
        self.diagnosis = diagnosis


class ComputeHostMetricNotFound(SchedulerWorkerError):
    """Raised when ``[metrics] required`` and a host does not report one of the metrics."""

    def __init__(self, host: str, node: str, name: str) -> None:
        super().__init__(f"Metric {name} could not be found on the compute host node {host}.{node}")
        self.host = host
        self.node = node
        self.name = name


class Conflict(SchedulerWorkerError):
    """Raised when another replica was first; the same request may succeed when repeated."""


class StaleFencingToken(Conflict):
    """Raised when a commit carries a token that is no longer the holder's; nothing was written."""


class ClusterLockTimeout(Conflict):
    """Raised when a cluster's lock was not granted within ``[cluster_lock] acquire_timeout``."""


class BackendError(SchedulerWorkerError):
    """Raised when something outside the process fails."""


class StateUnavailable(BackendError):
    """Raised when the shared state cannot be reached within the request's deadline."""


class BusUnavailable(BackendError):
    """Raised when a message could not be handed to the broker."""


class Undeliverable(BusUnavailable):
    """Raised when the broker knows nobody who would take the message; repeating does not help."""


class CallTimeout(BackendError):
    """Raised when no answer came in time; whether the call had an effect is unknown."""


class RemoteFailure(BackendError):
    """Raised when the called method failed over there; names the error as the wire does."""

    def __init__(self, module: str, class_name: str, message: str) -> None:
        super().__init__(f"{class_name}: {message}")
        self.module = module
        self.class_name = class_name
        self.message = message


class PolicyError(SchedulerWorkerError):
    """Raised when a tuning policy cannot be used; ``issues`` is all that is wrong with it."""

    def __init__(self, issues: Sequence[Issue]) -> None:
        super().__init__("\n".join(map(str, issues)))
        self.issues = tuple(issues)


class ConfigError(SchedulerWorkerError):
    """Raised when the configuration cannot work; names the option and what to change."""


class InternalError(SchedulerWorkerError):
    """Raised to a caller in place of an unexpected error, whose details are in the log."""
