"""Tuning policies: from the operator's files, or set over the API, which takes precedence.

A policy that was set is in force in all workers; withdrawing it puts the file's in force again.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
from msgspec import Meta

from scheduler_worker.errors import Conflict, NotFound
from scheduler_worker.model.policies import TuningProblem, TuningText
from scheduler_worker.operations.callers import Right
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

if TYPE_CHECKING:
    from scheduler_worker.service.tuning.policies import Alarm, CurrentPolicy


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


class StatisticsQuery(PageQuery, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which hosts are listed."""

    cluster: Annotated[str | None, Meta(description="Only hosts of this cluster.")] = None


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
def get_statistics(call: Call, query: StatisticsQuery) -> Page[HostStatistics]:
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
