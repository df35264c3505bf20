"""The hosts that requests may choose from while a balance moves VMs or switches hosts off.

They are in the cluster's ledgers, which come with each grant of its lock. A request for a VM that
is to migrate gets a host that the balance has named, whether the agent or Nova asks. No request
gets a host that the balance is putting into maintenance.
"""

from msgspec import structs

from scheduler_worker.model.ledgers import AskedMigration
from scheduler_worker.scheduling.pipeline import Request
from scheduler_worker.service.state.replica import ClusterReplica


def migration_of(replica: ClusterReplica, request: Request) -> AskedMigration | None:
    """The migration under way of the VM that a request is about; the caller holds the lock.

    One that is overdue binds nobody any more, even if no worker runs to say that it failed.
    """
    if not replica.ledger.under_way or len(request.instance_uuids) != 1:
        return None
    asked = replica.ledger.under_way.get(request.instance_uuids[0])
    return asked if asked and asked.overdue_at_s > replica.table.now_s else None


def narrowed(replica: ClusterReplica, request: Request) -> Request:
    """The request, limited to the hosts that its VM's migration may choose from, if there is one.

    A host that is being put into maintenance, or switched off, is left out in any case. The caller
    holds the replica's lock.
    """
    spec = request.spec
    asked = migration_of(replica, request)
    if asked is not None:
        only = spec.only_hosts
        allowed = tuple(host for host in asked.candidates if only is None or host in only)
        spec = structs.replace(spec, only_hosts=allowed)
    # Of a migration too: its destination may be closing since the balance named it. A host whose
    # power action is overdue takes VMs again, as with migrations.
    power = replica.power.under_way
    if power and power.to != "up" and power.overdue_at_s > replica.table.now_s:
        spec = structs.replace(spec, closing_hosts=(power.host,))
    return request if spec is request.spec else structs.replace(request, spec=spec)
