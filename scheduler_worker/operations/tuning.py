"""Tuning: its policies, and what they have set on hosts, VMs and disks, and by which rules.

Policies are from the operator's files, or set over the API, which takes precedence. A policy that
was set is in force in all workers; withdrawing it puts the file's in force again. What was set on
hosts is read from the shared state: the workers that run the cycles need not be asked.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
from msgspec import Meta

from scheduler_worker.errors import Conflict, NotFound
from scheduler_worker.model.host_records import known_as
from scheduler_worker.model.policies import TuningProblem, TuningText
from scheduler_worker.operations.callers import Right
from scheduler_worker.operations.hosts import MOST_OF_A_NAME, ClusterHostsQuery, OneHost, only_one
from scheduler_worker.operations.operation import (
    DOCUMENT,
    Call,
    Nothing,
    Page,
    PageQuery,
    moment,
    operation,
    page_of,
)
from scheduler_worker.tuning.tuning_policy import Scope

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scheduler_worker.model.host_records import HostRecord
    from scheduler_worker.service.tuning.policies import Alarm, CurrentPolicy
    from scheduler_worker.service.tuning.records import EntityState
    from scheduler_worker.service.tuning.tuned_hosts import TunedHost

Origin = Literal["file", "set"]


class TuningPolicyView(TuningText, frozen=True, kw_only=True):
    """A tuning policy; `file` is its file where `origin` is `file`."""

    origin: Origin


class TuningAlarm(TuningProblem, frozen=True, kw_only=True):
    """Why a policy is not in force as it is written: what was in force before stays so.

    `line` and `column` count from 1, `text` is the line.
    """

    origin: Origin
    line: int | None
    column: int | None
    text: str | None


class OneTuningPolicy(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A tuning policy."""

    name: Annotated[str, Meta(description="The name of a tuning policy.")]


class NewText(OneTuningPolicy, frozen=True, forbid_unknown_fields=True):
    """The text of a tuning policy."""

    text: Annotated[
        str, Meta(description="In the language of tuning policies, YAML.", extra=DOCUMENT)
    ]


class HostStatistics(msgspec.Struct, frozen=True, kw_only=True):
    """A host with its VMs and their disks, as tuning rules see them."""

    uuid: str
    host: str
    cluster: str
    reported_at: datetime | None
    statistics: dict[str, Any]
    vms: dict[str, Any]
    disks: dict[str, Any]


@operation(
    "GET",
    "/tuning-policies",
    command="tuning-policy list",
    columns={"Name": "name", "Origin": "origin", "File": "file"},
)
def list_tuning_policies(call: Call, query: PageQuery) -> Page[TuningPolicyView]:
    """List the tuning policies by name."""
    rows = ((policy.name, policy) for policy in call.services.tuning.current())
    return page_of(rows, query, _shown)


@operation("GET", "/tuning-policies/{name}", command="tuning-policy show")
def get_tuning_policy(call: Call, target: OneTuningPolicy) -> TuningPolicyView:
    """Show a tuning policy with its text."""
    return _shown(_existing(call, target.name))


@operation(
    "PUT",
    "/tuning-policies/{name}",
    command="tuning-policy set",
    right=Right.EDIT_TUNING,
    has_condition=True,
)
def set_tuning_policy(call: Call, asked: NewText) -> TuningPolicyView:
    """Put a tuning policy in force in all workers."""
    from scheduler_worker.ports import ABSENT
    from scheduler_worker.service.tuning.policies import CurrentPolicy

    name, text, tuning = asked.name, asked.text, call.services.tuning
    now = _named(call, name)
    call.check_match(now and _shown(now))
    tuning.check(name, text)
    after = CurrentPolicy(name, text, file=None)
    call.is_new = now is None
    with call.changing("tuning.set", name, before=_texts(now), after=_texts(after)):
        tuning.set(name, text, version=now.version if now else ABSENT)
    return _shown(after)


@operation(
    "DELETE",
    "/tuning-policies/{name}",
    command="tuning-policy withdraw",
    done="withdrawn: {}",
    right=Right.EDIT_TUNING,
    has_condition=True,
)
def withdraw_tuning_policy(call: Call, target: OneTuningPolicy) -> None:
    """Withdraw a tuning policy that was set; one of a file with its name returns."""
    name, now = target.name, _existing(call, target.name)
    call.check_match(_shown(now))
    if now.file is not None:
        raise Conflict(
            f"Tuning policy {name!r} was not set: it is in the file {now.file}; change it there, "
            "or set another text."
        )
    with call.changing("tuning.withdraw", name, before=_texts(now)):
        call.services.tuning.set(name, None, version=now.version)


@operation("DELETE", "/tuning-policies", command="tuning-policy reset", right=Right.EDIT_TUNING)
def reset_tuning_policies(call: Call, _: Nothing) -> None:
    """Withdraw all tuning policies that were set."""
    own = [policy for policy in call.services.tuning.current() if policy.file is None]
    if own:
        with call.changing("tuning.reset", "", before=_texts(*own)):
            call.services.tuning.reset({policy.name: policy.version for policy in own})


@operation("GET", "/tuning-alarms", command="tuning-alarm list")
def list_tuning_alarms(call: Call, _: Nothing) -> Page[TuningAlarm]:
    """List the problems with tuning policies, all on one page."""
    call.services.tuning.refresh()
    return Page([_alarm(alarm) for alarm in call.services.tuning.alarms])


@operation("GET", None)
def get_statistics(call: Call, query: ClusterHostsQuery) -> Page[HostStatistics]:
    """List hosts with their VMs, as tuning rules see them."""
    hosts, following = call.worker.tuner.statistics(query.cluster, query.marker, query.limit)
    items = [
        HostStatistics(
            uuid=record.uuid,
            host=record.host,
            cluster=record.cluster,
            reported_at=moment(record.reported_at_s),
            statistics=sample.host,
            vms=sample.vms,
            disks=sample.disks,
        )
        for record, sample in hosts
    ]
    return Page(items, following)


def _named(call: Call, name: str) -> CurrentPolicy | None:
    return next((policy for policy in call.services.tuning.current() if policy.name == name), None)


def _existing(call: Call, name: str) -> CurrentPolicy:
    policy = _named(call, name)
    if policy is None:
        raise NotFound("tuning policy", name)
    return policy


def _alarm(alarm: Alarm) -> TuningAlarm:
    place = alarm.place
    return TuningAlarm(
        policy=alarm.policy,
        origin=_origin(alarm.file),
        file=alarm.file,
        line=place.line if place else None,
        column=place.column if place else None,
        message=alarm.message,
        text=place.excerpt if place else None,
    )


def _origin(file: str | None) -> Origin:
    return "set" if file is None else "file"


def _shown(policy: CurrentPolicy) -> TuningPolicyView:
    return TuningPolicyView(policy.name, policy.text, policy.file, origin=_origin(policy.file))


def _texts(*policies: CurrentPolicy | None) -> dict[str, str] | None:
    """The texts by name, for the audit; None where there are none."""
    return {policy.name: policy.text for policy in policies if policy is not None} or None


# What was set on hosts


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


class TunedHostsQuery(ClusterHostsQuery, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which hosts are listed."""

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

    def is_meant(record: HostRecord) -> bool:
        return part in record.host.lower() or part in record.uuid.lower()

    tuned = call.services.tuned_hosts
    hosts, following = tuned.page(query.cluster, query.marker, query.limit, is_meant)
    return Page([_outline(host) for host in hosts], following)


@operation("GET", "/tuned-hosts/{name}", command="tuned-host show")
def get_tuned_host(call: Call, target: OneHost) -> TunedHostDetails:
    """Show what was set on a host and on what runs there, and by which rules."""
    name, tuned = target.name, call.services.tuned_hosts

    def is_meant(record: HostRecord) -> bool:
        return name in known_as(record)

    hosts, _ = tuned.page(None, None, MOST_OF_A_NAME, is_meant)
    uuid = only_one([host.record.uuid for host in hosts], name, "tuned host")
    host = next(host for host in hosts if host.record.uuid == uuid)
    outline, outputs = _outline(host), tuned.outputs_of_rules(host.record.cluster)
    entities = [_entity(entity, host.record, outputs) for entity in host.state.entities]
    return TunedHostDetails(**msgspec.structs.asdict(outline), entities=entities)


def _outline(host: TunedHost) -> TunedHostView:
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
