"""The description of ``/v1`` in OpenAPI 3.1, made of the operations that serve."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from http import HTTPStatus
from typing import Any, get_args

import msgspec
from msgspec import NODEFAULT, UnsetType, structs

import scheduler_worker
from scheduler_worker.api.v1 import problems
from scheduler_worker.api.v1.operations import ROOT, Operation

_REFERENCES = "#/components/schemas/{name}"
_ARGUMENT = re.compile(r"\{(\w+)\}")
_JSON = "application/json"
_OF_EVERY = (
    HTTPStatus.BAD_REQUEST,
    HTTPStatus.UNAUTHORIZED,
    HTTPStatus.FORBIDDEN,
    HTTPStatus.NOT_FOUND,
    HTTPStatus.NOT_ACCEPTABLE,
    HTTPStatus.TOO_MANY_REQUESTS,
    HTTPStatus.INTERNAL_SERVER_ERROR,
    HTTPStatus.SERVICE_UNAVAILABLE,
)
_OF_BODIES = (
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
)
_ETAG = {"ETag": {"schema": {"type": "string"}, "description": "Of exactly this answer."}}

Plain = dict[str, Any]


def describe(operations: Sequence[Operation]) -> Plain:
    """The description, as plain values."""
    kinds = _kinds(operations)
    schemas, components = msgspec.json.schema_components(kinds, ref_template=_REFERENCES)
    schema_of = dict(zip(map(str, kinds), schemas, strict=True))
    paths: dict[str, Plain] = {}
    for each in operations:
        item = paths.setdefault(ROOT + each.path, {})
        item[each.method.lower()] = _operation(each, schema_of)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "scheduler_worker",
            "version": scheduler_worker.__version__,
            "description": "What operators read and do: clusters, hosts, policies, reservations, "
            "explanations, tuning policies, balancing and the audit.",
        },
        "servers": [{"url": "/"}],
        "security": [{"bearer": []}, {"basic": []}],
        "paths": paths,
        "components": {
            "schemas": components,
            "responses": {
                "Problem": {
                    "description": "The request failed; nothing has changed.",
                    "content": {problems.MEDIA_TYPE: {"schema": schema_of[str(problems.Problem)]}},
                }
            },
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer"},
                "basic": {"type": "http", "scheme": "basic"},
            },
        },
    }


def _kinds(operations: Iterable[Operation]) -> list[Any]:
    found: list[Any] = [problems.Problem]
    for each in operations:
        found += [kind for kind in (each.answer, each.body) if kind is not None]
        found += [kind for _, kind, _ in _query_fields(each)]
    return found


def _operation(operation: Operation, schema_of: Plain) -> Plain:
    found: Plain = {
        "operationId": operation.name,
        "summary": operation.summary,
        "parameters": [*_arguments(operation), *_parameters(operation, schema_of)],
        "responses": _responses(operation, schema_of),
    }
    if operation.body is not None:
        schema = schema_of[str(operation.body)]
        found["requestBody"] = {"required": True, "content": {_JSON: {"schema": schema}}}
    return found


def _arguments(operation: Operation) -> list[Plain]:
    return [
        {
            "name": name,
            "in": "path",
            "required": True,
            "schema": {"type": "string", "minLength": 1},
        }
        for name in _ARGUMENT.findall(operation.path)
    ]


def _parameters(operation: Operation, schema_of: Plain) -> list[Plain]:
    found: list[Plain] = []
    for name, kind, is_required in _query_fields(operation):
        schema = schema_of[str(kind)]
        found.append({"name": name, "in": "query", "required": is_required, "schema": schema})
    conditions = ["If-None-Match"] if operation.is_safe else list(operation.conditions)
    found += [{"name": each, "in": "header", "schema": {"type": "string"}} for each in conditions]
    return found


def _query_fields(operation: Operation) -> list[tuple[str, Any, bool]]:
    """The parameters of the query: name, type and whether it is required."""
    if operation.query is None:
        return []
    return [
        (each.encode_name, _without_unset(each.type), each.default is NODEFAULT)
        for each in structs.fields(operation.query)
    ]


def _without_unset(kind: Any) -> Any:
    members = get_args(kind)
    return next(each for each in members if each is not UnsetType) if UnsetType in members else kind


def _responses(operation: Operation, schema_of: Plain) -> Plain:
    done: Plain = {"description": operation.summary}
    if operation.answer is not None:
        done["content"] = {_JSON: {"schema": schema_of[str(operation.answer)]}}
        done["headers"] = _ETAG if operation.has_etag else {}
    found: Plain = {str(operation.status.value): done}
    if operation.creates:
        found[str(HTTPStatus.CREATED.value)] = {**done, "description": "It is new."}
    if operation.is_safe:
        found[str(HTTPStatus.NOT_MODIFIED.value)] = {
            "description": "The answer is the one that If-None-Match names."
        }
    more = _OF_BODIES if operation.body is not None else ()
    for status in (*_OF_EVERY, *more, *operation.errors):
        found[str(status.value)] = {"$ref": "#/components/responses/Problem"}
    return found
