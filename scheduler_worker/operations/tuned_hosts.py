"""What tuning has set on hosts, VMs and disks, and by which rules.

All is read from the shared state: the workers that run the cycles need not be asked.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Literal

import msgspec
from msgspec import Meta

from scheduler_worker.operations.hosts import MOST_OF_A_NAME, OneHost, only_one
from scheduler_worker.operations.operation import Call, Page, PageQuery, moment, operation
from scheduler_worker.tuning.tuning_policy import Scope

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scheduler_worker.model.host_records import HostRecord
    from scheduler_worker.service.tuning import tuned_hosts
    from scheduler_worker.service.tuning.records import EntityState


class TunedHostView(msgspec.Struct, frozen=True, kw_only=True):
    """A host that was tuned: how many outputs were set on it and on what runs there.

    `cycle` is the last one of its cluster, which `worker` ran at `cycle_at`.
    `notified_at`: when its agent was last sent its values, or none had to be sent; null: never.
    `changed_at`: when the last of the values was set, as far as it is known.
    """

    uuid: str
    name: str
    cluster: str
    worker: str | None
    cycle: int | None
    cycle_at: datetime | None
    reported_at: datetime | None
    notified_at: datetime | None
    changed_at: datetime | None
    outputs: int
    held: int


class TunedOutput(msgspec.Struct, frozen=True, kw_only=True):
    """The value that an output was last set to. `rules` are the rules that voted for it.

    An older release has not kept the rules: there are none then, and `set_at` is null.
    """

    output: str
    value: float
    rules: list[str]
    set_at: datetime | None


class HeldChangeView(msgspec.Struct, frozen=True, kw_only=True):
    """A change that a rule holds back, because it is too small yet.

    `output` is null where the process that answers does not know the rule.
    """

    rule: str
    output: str | None
    direction: Literal["up", "down"]
    held_s: float


class TunedEntity(msgspec.Struct, frozen=True, kw_only=True):
    """The host itself, a VM, or the disk `device` of a VM.

    `evaluated_at`: in the last cycle whose values its host's agent was sent.
    """

    scope: Scope
    name: str
    device: str | None
    evaluated_at: datetime | None
    outputs: list[TunedOutput]
    held: list[HeldChangeView]


class TunedHostDetails(TunedHostView, frozen=True, kw_only=True):
    """A host that was tuned, with everything on it."""

    entities: list[TunedEntity]


class TunedHostsQuery(PageQuery, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which hosts are listed."""

    cluster: Annotated[str | None, Meta(description="Only hosts of this cluster.")] = None
    search: Annotated[
        Annotated[str, Meta(min_length=1, max_length=256)] | None,
        Meta(description="A part of the name or uuid of a host."),
    ] = None


@operation(
    "GET",
    "/tuned-hosts",
    command="tuned-host list",
    columns={
        "Host": "name",
        "Cluster": "cluster",
        "Outputs": "outputs",
        "Held": "held",
        "Changed": "changed_at",
        "Cycle": "cycle",
        "Worker": "worker",
    },
)
def list_tuned_hosts(call: Call, query: TunedHostsQuery) -> Page[TunedHostView]:
    """List the hosts that were tuned, by uuid."""
    part = (query.search or "").lower()
    hosts, following = call.services.tuned_hosts.page(
        query.cluster,
        query.marker,
        query.limit,
        lambda record: part in record.host.lower() or part in record.uuid.lower(),
    )
    return Page([_outline(host) for host in hosts], following)


@operation("GET", "/tuned-hosts/{name}", command="tuned-host show")
def get_tuned_host(call: Call, target: OneHost) -> TunedHostDetails:
    """Show what was set on a host and on what runs there, and by which rules."""
    name, tuned = target.name, call.services.tuned_hosts
    hosts, _ = tuned.page(
        None,
        None,
        MOST_OF_A_NAME,
        lambda record: name in {record.uuid, record.host, record.nodename},
    )
    uuid = only_one([host.record.uuid for host in hosts], name, "tuned host")
    host = next(host for host in hosts if host.record.uuid == uuid)
    outline, outputs = _outline(host), tuned.outputs_of_rules(host.record.cluster)
    entities = [_entity(entity, host.record, outputs) for entity in host.state.entities]
    return TunedHostDetails(**msgspec.structs.asdict(outline), entities=entities)


def _outline(host: tuned_hosts.TunedHost) -> TunedHostView:
    record, state, turn = host
    entities = state.entities
    set_at_s = (by.at_s for entity in entities for by in entity.set_by.values())
    return TunedHostView(
        uuid=record.uuid,
        name=record.host,
        cluster=record.cluster,
        worker=turn.worker if turn else None,
        cycle=turn.cycle if turn else None,
        cycle_at=moment(turn.at_s) if turn else None,
        reported_at=moment(state.reported_at_s),
        notified_at=moment(state.notified_at_s),
        changed_at=moment(max(set_at_s, default=0.0)),
        outputs=sum(len(entity.emitted) for entity in entities),
        held=sum(len(entity.held) for entity in entities),
    )


def _entity(state: EntityState, record: HostRecord, outputs: Mapping[str, str]) -> TunedEntity:
    scope = Scope(state.entity.scope)
    return TunedEntity(
        scope=scope,
        name=record.host if scope == Scope.HOST else state.entity.name,
        device=state.entity.device or None,
        evaluated_at=moment(state.evaluated_at_s or 0.0),
        outputs=[_output(state, output) for output in sorted(state.emitted)],
        held=[
            HeldChangeView(
                rule=rule,
                output=outputs.get(rule),
                direction="up" if held.direction > 0 else "down",
                held_s=held.elapsed_s,
            )
            for rule, held in sorted(state.held.items())
        ],
    )


def _output(state: EntityState, output: str) -> TunedOutput:
    by = state.set_by.get(output)
    return TunedOutput(
        output=output,
        value=state.emitted[output],
        rules=list(by.rules) if by else [],
        set_at=moment(by.at_s) if by else None,
    )
