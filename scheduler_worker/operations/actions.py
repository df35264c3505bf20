"""What a caller may have a right to."""

from enum import StrEnum


class Right(StrEnum):
    """What a rule permits; :mod:`scheduler_worker.operations.rights` has the rules."""

    READ = "api:read"
    CREATE = "policy:create"
    EDIT = "policy:edit"
    DELETE = "policy:delete"
    ATTACH = "cluster:attach"
    REHEARSE = "rehearsal:run"
    DELETE_UNIT = "unit:delete"
    SWITCH_UNIT = "unit:switch"
    RELEASE = "reservation:release"
    SWITCH_BALANCING = "balancing:switch"
    EDIT_TUNING = "tuning:edit"
    DRAIN = "worker:drain"
    READ_AUDIT = "audit:read"
