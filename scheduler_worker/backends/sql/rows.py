"""Policies, units, attachments and audit entries as rows, and back."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec
from sqlalchemy import Row

from scheduler_worker.backends.sql.schema import NAME
from scheduler_worker.model.policies import (
    BalanceUse,
    ClusterPolicy,
    FilterUse,
    Position,
    SelectorUse,
    UnitUse,
    WeightUse,
)
from scheduler_worker.policy_store import Attachment, AuditEntry, StoredPolicy, StoredUnit
from scheduler_worker.wording import cut

_POSITIONS: Mapping[Position, int] = {"first": -1, "none": 0, "last": 1}
_POSITION_OF = {number: position for position, number in _POSITIONS.items()}
_MAX_REASON = 4096


def policy_row(policy: StoredPolicy) -> dict[str, Any]:
    """The row of ``policy``."""
    document = policy.document
    return {
        "id": document.id,
        "name": document.name,
        "name_key": document.name.casefold(),
        "description": document.description,
        "version": document.version,
        "is_locked": policy.is_locked,
        "is_default": policy.is_default,
        "changed_by": cut(policy.changed_by, NAME),
        "changed_at": policy.changed_at_s,
    }


def use_rows(
    document: ClusterPolicy, unit_ids: Mapping[tuple[str, str], str]
) -> list[tuple[dict[str, Any], UnitUse]]:
    """The rows of ``policy_policy_unit``, each with its use.

    ``unit_ids`` are the ids of user units by kind and name.
    """
    uses: list[tuple[str, int, UnitUse, int | None, float | None]] = [
        ("filter", number, use, _POSITIONS[use.position], None)
        for number, use in enumerate(document.filters)
    ]
    uses += [
        ("weight", number, weight, None, weight.factor)
        for number, weight in enumerate(document.weights)
    ]
    if document.balance is not None:
        uses.append(("balance", 0, document.balance, None, None))
    uses.append(("selector", 0, document.selector, None, None))
    return [
        (
            {
                "policy_id": document.id,
                "kind": kind,
                "sequence": number,
                "unit": use.unit,
                "unit_id": unit_ids.get((kind, use.unit)),
                "label": use.name,
                "position": position,
                "factor": factor,
            },
            use,
        )
        for kind, number, use, position, factor in uses
    ]


def parameter_rows(owner: str, value: Any, parameters: Mapping[str, str]) -> list[dict[str, Any]]:
    """The rows of ``policy_parameter``; ``owner`` is ``policy_id``, ``use_id`` or ``cluster``."""
    empty = {"policy_id": None, "use_id": None, "cluster": None}
    return [
        {**empty, owner: value, "name": name, "value": text} for name, text in parameters.items()
    ]


def stored_policy(
    row: Row[Any],
    uses: Sequence[Row[Any]],
    own: Mapping[str, str],
    of_uses: Mapping[int, Mapping[str, str]],
) -> StoredPolicy:
    """The policy of its row, its uses in their order, its parameters and its uses' parameters."""

    def fields(use: Row[Any]) -> dict[str, Any]:
        return {"unit": use.unit, "name": use.label, "parameters": of_uses.get(use.id, {})}

    by_kind: dict[str, list[Row[Any]]] = {}
    for use in uses:
        by_kind.setdefault(use.kind, []).append(use)
    balance = next((BalanceUse(**fields(use)) for use in by_kind.get("balance", ())), None)
    (selector,) = by_kind["selector"]
    return StoredPolicy(
        document=ClusterPolicy(
            id=row.id,
            name=row.name,
            version=row.version,
            description=row.description,
            filters=tuple(
                FilterUse(**fields(use), position=_POSITION_OF[use.position])
                for use in by_kind.get("filter", ())
            ),
            weights=tuple(
                WeightUse(**fields(use), factor=use.factor) for use in by_kind.get("weight", ())
            ),
            balance=balance,
            selector=SelectorUse(**fields(selector)),
            parameters=own,
        ),
        is_locked=row.is_locked,
        is_default=row.is_default,
        changed_by=row.changed_by,
        changed_at_s=row.changed_at,
    )


def unit_row(unit: StoredUnit) -> dict[str, Any]:
    """The row of ``policy_unit``."""
    parameters = msgspec.json.encode(unit.parameters, order="sorted").decode()
    return msgspec.structs.asdict(unit) | {"kind": str(unit.kind), "parameters": parameters}


def stored_unit(row: Row[Any]) -> StoredUnit:
    """The unit of its row."""
    parameters = msgspec.json.decode(row.parameters, type=dict[str, str])
    return StoredUnit(**row._asdict() | {"parameters": parameters})


def attachment_row(attachment: Attachment) -> dict[str, Any]:
    """The row of ``policy_cluster``."""
    policy_id = attachment.policy_id
    return {
        "cluster": attachment.cluster,
        "policy_id": None if attachment.is_built_in else policy_id,
        "built_in_policy": policy_id if attachment.is_built_in else None,
        "version": attachment.version,
        "changed_by": cut(attachment.changed_by, NAME),
        "changed_at": attachment.changed_at_s,
    }


def stored_attachment(row: Row[Any], parameters: Mapping[str, str]) -> Attachment:
    """The attachment of its row."""
    return Attachment(
        cluster=row.cluster,
        policy_id=row.policy_id or row.built_in_policy,
        is_built_in=row.policy_id is None,
        parameters=parameters,
        version=row.version,
        changed_by=row.changed_by,
        changed_at_s=row.changed_at,
    )


def audit_row(entry: AuditEntry) -> dict[str, Any]:
    """The row of ``audit``; the store numbers it."""
    return {
        "at": entry.at_s,
        "user_name": cut(entry.user, NAME),
        "origin": cut(entry.origin, NAME),
        "action": cut(entry.action, 64),
        "subject": cut(entry.subject, NAME),
        "result": entry.result,
        "reason": cut(entry.reason, _MAX_REASON),
        "before": entry.before,
        "after": entry.after,
    }


def audit_entry(row: Row[Any]) -> AuditEntry:
    """The entry of its row."""
    fields = row._asdict()
    number, at_s, user = fields.pop("id"), fields.pop("at"), fields.pop("user_name")
    return AuditEntry(id=str(number), at_s=at_s, user=user, **fields)


def by_owner(rows: Iterable[Row[Any]], owner: str) -> dict[Any, dict[str, str]]:
    """Parameters by the value of the owner's column."""
    parameters: dict[Any, dict[str, str]] = {}
    for row in rows:
        parameters.setdefault(getattr(row, owner), {})[row.name] = row.value
    return parameters
