"""Tuning policies: those of the operator's files, and those that were set, which take precedence.

A policy that was set is in force in all workers; withdrawing it puts the file's in force again.
"""

from __future__ import annotations

from collections.abc import Sequence
from http import HTTPStatus
from typing import Literal

import msgspec

from scheduler_worker.api.access import Access
from scheduler_worker.api.rights import Action
from scheduler_worker.api.v1.operations import Answer, Call, Operation, Page, PageQuery, given
from scheduler_worker.api.v1.problems import Failed, FieldError
from scheduler_worker.errors import NotFound
from scheduler_worker.ports import ABSENT
from scheduler_worker.service.policies.audit import AuditLog
from scheduler_worker.service.tuning.policies import (
    Alarm,
    CurrentPolicy,
    TuningPolicies,
    issues_of,
)

_CONDITIONS = (HTTPStatus.PRECONDITION_FAILED, HTTPStatus.PRECONDITION_REQUIRED)


class TuningPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """A tuning policy; `file` is its file where `origin` is `file`."""

    name: str
    text: str
    origin: Literal["file", "set"]
    file: str | None


class TuningPolicyText(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The text of a tuning policy, in YAML."""

    text: str


class TuningAlarm(msgspec.Struct, frozen=True, kw_only=True):
    """Why a policy is not in force as it is written: what was in force before stays so.

    `policy` is null for the clusters file, and for a file that cannot be read; `file` is null for a
    policy that was set. `line` and `column` count from 1, `text` is the line.
    """

    policy: str | None
    origin: Literal["file", "set"]
    file: str | None
    line: int | None
    column: int | None
    message: str
    text: str | None


class TuningOperations:
    """Serves tuning policies."""

    def __init__(self, access: Access, audit: AuditLog, policies: TuningPolicies) -> None:
        self._access = access
        self._audit = audit
        self._policies = policies

    def operations(self) -> Sequence[Operation]:
        """What is served."""
        one = "/tuning-policies/{name}"
        return [
            Operation(
                "GET", "/tuning-policies", "list_tuning_policies", "Tuning policies by name.",
                self.list_policies, answer=Page[TuningPolicy], query=PageQuery,
            ),
            Operation(
                "DELETE", "/tuning-policies", "reset_tuning_policies",
                "Withdraw all tuning policies that were set.", self.reset_policies,
                status=HTTPStatus.NO_CONTENT, errors=(HTTPStatus.CONFLICT,),
            ),
            Operation(
                "GET", one, "get_tuning_policy", "A tuning policy.", self.get_policy,
                answer=TuningPolicy,
            ),
            Operation(
                "PUT", one, "set_tuning_policy", "Put a tuning policy in force.", self.put_policy,
                answer=TuningPolicy, body=TuningPolicyText, creates=True,
                conditions=("If-Match", "If-None-Match"),
                errors=(HTTPStatus.CONFLICT, *_CONDITIONS),
            ),
            Operation(
                "DELETE", one, "withdraw_tuning_policy",
                "Withdraw a tuning policy that was set; one of a file with its name returns.",
                self.withdraw_policy, status=HTTPStatus.NO_CONTENT, conditions=("If-Match",),
                errors=(HTTPStatus.CONFLICT, *_CONDITIONS),
            ),
            Operation(
                "GET", "/tuning-alarms", "list_tuning_alarms",
                "Problems with tuning policies, all on one page.", self.list_alarms,
                answer=Page[TuningAlarm],
            ),
        ]  # fmt: skip

    def list_policies(self, call: Call) -> Answer:
        self._access.check(call.caller, Action.READ, "")
        marker = given(call.query.marker) or ""
        found = [each for each in self._policies.current() if each.name > marker]
        shown = [_shown(each) for each in found[: call.query.limit]]
        return call.page(shown, shown[-1].name if len(found) > len(shown) else None)

    def get_policy(self, call: Call, name: str) -> Answer:
        self._access.check(call.caller, Action.READ, "")
        return Answer(_shown(self._existing(name)))

    def put_policy(self, call: Call, name: str) -> Answer:
        self._check_editor(call, name)
        text = call.body.text
        now = self._named(name)
        call.check_match(now and _shown(now), is_needed=True)
        _check_text(name, text)
        self._policies.check(name, text)
        after = CurrentPolicy(name, text, file=None)
        with self._audit.changing(
            call.actor, "tuning.set", name, before=_json([now] if now else []), after=_json([after])
        ):
            self._policies.set(name, text, version=now.version if now else ABSENT)
        return Answer(_shown(after), HTTPStatus.OK if now else HTTPStatus.CREATED)

    def withdraw_policy(self, call: Call, name: str) -> Answer:
        self._check_editor(call, name)
        now = self._existing(name)
        call.check_match(_shown(now), is_needed=True)
        if now.file is not None:
            raise Failed(
                HTTPStatus.CONFLICT,
                f"Tuning policy {name!r} was not set: it is in the file {now.file}; change it "
                "there, or set another text.",
            )
        with self._audit.changing(
            call.actor, "tuning.withdraw", name, before=_json([now]), after=None
        ):
            self._policies.set(name, None, version=now.version)
        return Answer()

    def reset_policies(self, call: Call) -> Answer:
        self._check_editor(call, "")
        own = [each for each in self._policies.current() if each.file is None]
        if own:
            with self._audit.changing(
                call.actor, "tuning.reset", "", before=_json(own), after=None
            ):
                self._policies.reset({each.name: each.version for each in own})
        return Answer()

    def list_alarms(self, call: Call) -> Answer:
        self._access.check(call.caller, Action.READ, "")
        self._policies.refresh()
        return call.page([_alarm(each) for each in self._policies.alarms], None)

    def _named(self, name: str) -> CurrentPolicy | None:
        return next((each for each in self._policies.current() if each.name == name), None)

    def _existing(self, name: str) -> CurrentPolicy:
        found = self._named(name)
        if found is None:
            raise NotFound("tuning policy", name)
        return found

    def _check_editor(self, call: Call, name: str) -> None:
        self._access.check(call.caller, Action.EDIT_TUNING, name)


def _check_text(name: str, text: str) -> None:
    """Raise Failed with all issues of a text, each with its place."""
    if issues := issues_of(name, text):
        errors = [
            FieldError(each.what, pointer="/text", line=each.place.line, column=each.place.column)
            for each in issues
        ]
        detail = "; ".join(each.headline for each in issues)
        raise Failed(HTTPStatus.BAD_REQUEST, f"text: {detail}", errors=errors)


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


def _origin(file: str | None) -> Literal["file", "set"]:
    return "set" if file is None else "file"


def _shown(policy: CurrentPolicy) -> TuningPolicy:
    return TuningPolicy(
        name=policy.name,
        text=policy.text,
        origin=_origin(policy.file),
        file=policy.file,
    )


def _json(policies: Sequence[CurrentPolicy]) -> str | None:
    """The texts by name, for the audit; None where there are none."""
    texts = {each.name: each.text for each in policies}
    return msgspec.json.encode(texts).decode() if texts else None
