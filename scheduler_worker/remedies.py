"""What to do where something that a worker or the API needs cannot be used."""

BUS = "See [DEFAULT] transport_url, and the log of RabbitMQ"
STATE = (
    "See [state] url, and whether Redis answers there: redis-cli -u URL ping. If it does, the log "
    "has the error of the command that fails"
)
STATE_FULL = (
    "Redis answers and is full: redis-cli -u URL info memory; raise maxmemory (docs/sizing.md), "
    "and delete nothing, since reservations are in it"
)
STATE_DISK = (
    "Redis cannot write its file, and so takes no changes: redis-cli -u URL info persistence; free "
    "its disk, and see its log"
)
STATE_REPLICAS = (
    "Redis lacks the replicas that min-replicas-to-write asks for: redis-cli -u URL info "
    "replication; bring them back"
)
STATE_LOADING = "Redis loads its data, and answers when it has: redis-cli -u URL info persistence"
STATE_READ_ONLY = (
    "[state] url names a replica, or a failover is under way: redis-cli -u URL info replication"
)
STATE_ACCOUNT = (
    "Give the account of [state] url the commands and keys of docs/security.md, Redis: "
    "redis-cli ACL SETUSER"
)
NOVA = "See [nova], and whether it answers: openstack compute service list"
NOVA_DATABASES = (
    "See [api_database] connection, and nova-manage cell_v2 list_cells; a cell mapping that is no "
    "template names its account itself (docs/migrating-from-nova.md, Accounts)"
)
PLACEMENT = "See [placement], and whether it answers: openstack resource provider list"
BOOK = "Set appendonly yes at Redis, and [policy_store] connection for an archive"
ARCHIVE = "See [policy_store] connection, and whether the database answers there"
HOSTS = (
    "See whether the services on these hosts run and reach the bus: scheduler-workerctl host list "
    "--state down"
)
CONTESTED = (
    "Give each machine a host name and a uuid of its own, and name one cluster in all that report "
    "a host (docs/troubleshooting.md, No hosts)"
)
WALLS = (
    "Permit them (docs/external-units.md, Walls), or leave them out of [external_units] isolation"
)
UNREADABLE_PYTHON = (
    "Set [external_units] python to an interpreter that this user can read, such as "
    "/usr/bin/python3, or let this user read all of the path"
)
UNREADABLE_UNITS = "Let this user read the directory and its files, as with chmod -R o+rX"
ALL_OF_IT = "scheduler-workerctl doctor, on the worker's machine, looks at all that it needs"
SAME_CONFIGURATION = "Give all workers of a cloud the same configuration, and restart them"
UPGRADE = "Finish the upgrade (docs/upgrading.md)"
START = "Start one (systemctl start scheduler-worker@1), and see its log"


def lost(worker: str) -> str:
    """Of a worker that should have reported."""
    return (
        "See its log, and start it again; if it is gone for good: scheduler-workerctl worker "
        f"dismiss {worker}"
    )


REFUSED = "its account may not do all that a worker does"
"""What the shared state's errors say where it refuses a command or a key."""
ABOUT_THE_BUS = "the bus "
"""How what a worker says of a bus that cannot be used begins."""
DRAINED = "the worker is drained; scheduler-workerctl worker resume ends that"
"""What a drained worker says of itself."""


def of_state(problem: str) -> str:
    """What to do where the shared state cannot be used for that reason."""
    found = (remedy for said, remedy in _OF_STATE.items() if said in problem)
    return next(found, STATE)


_OF_STATE = {
    REFUSED: STATE_ACCOUNT,
    "maxmemory": STATE_FULL,
    "MISCONF": STATE_DISK,
    "NOREPLICAS": STATE_REPLICAS,
    "loading the dataset": STATE_LOADING,
    "read only replica": STATE_READ_ONLY,
}
"""What Redis says -> what to do."""
