"""The description of ``/v1`` in OpenAPI 3.1, made of the operations that serve."""

import re
from collections.abc import Sequence
from functools import lru_cache, reduce
from http import HTTPStatus
from operator import or_
from typing import Annotated, Any, get_args, get_origin

import msgspec
from msgspec import NODEFAULT, structs

import scheduler_worker
from scheduler_worker.api import problems
from scheduler_worker.operations.forms import description
from scheduler_worker.operations.operation import Operation

ROOT = "/v1"
_REFERENCES = "#/components/schemas/{name}"
_ARGUMENT = re.compile(r"\{(\w+)\}")
_JSON = "application/json"
_OF_EVERY = (400, 401, 403, 404, 406, 409, 429, 500, 503)
_OF_BODIES, _OF_CONDITIONS = (413, 415), (412, 428)
"""Statuses of problems."""
_ETAG = {"ETag": {"schema": {"type": "string"}, "description": "Of exactly this answer."}}

Plain = dict[str, Any]


def describe(operations: Sequence[Operation[Any, Any]]) -> Plain:
    """The description, as plain values."""
    kinds: list[Any] = [problems.Problem]
    for operation in operations:
        kinds += [kind for kind in (operation.answer, body_of(operation)) if kind is not None]
        kinds += [_without_none(field.type) for field in query_fields(operation)]
    schemas, components = msgspec.json.schema_components(kinds, ref_template=_REFERENCES)
    schema_of = dict(zip(map(str, kinds), schemas, strict=True))
    paths: dict[str, Plain] = {}
    for operation in operations:
        item = paths.setdefault(f"{ROOT}{operation.path}", {})
        item[operation.method.lower()] = _operation(operation, schema_of)
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


def has_body(operation: Operation[Any, Any]) -> bool:
    """Whether its parameters come in the body, except the path's."""
    return operation.method in {"POST", "PUT"}


def path_names(operation: Operation[Any, Any]) -> list[str]:
    """The parameters that are in the path."""
    return _ARGUMENT.findall(str(operation.path))


def query_fields(operation: Operation[Any, Any]) -> list[structs.FieldInfo]:
    """The parameters that are in the query."""
    if has_body(operation):
        return []
    return [field for field in operation.fields if field.name not in path_names(operation)]


def body_of(operation: Operation[Any, Any]) -> type[msgspec.Struct] | None:
    """The type of the body: the parameters except the path's; None: there is no body."""
    if not has_body(operation):
        return None
    in_path = path_names(operation)
    kind: type[msgspec.Struct] = operation.parameters
    return _without(kind, tuple(in_path)) if in_path else kind


@lru_cache
def _without(kind: type[msgspec.Struct], in_path: tuple[str, ...]) -> type[msgspec.Struct]:
    """Made once for each: two types of one name would be two schemas."""
    fields = [
        (field.name, field.type) if field.required else (field.name, field.type, _default(field))
        for field in structs.fields(kind)
        if field.name not in in_path
    ]
    return msgspec.defstruct(
        kind.__name__, fields, kw_only=True, forbid_unknown_fields=True,
        namespace={"__doc__": kind.__doc__},
    )  # fmt: skip


def _default(field: structs.FieldInfo) -> Any:
    if field.default_factory is NODEFAULT:
        return field.default
    return msgspec.field(default_factory=field.default_factory)


def _operation(operation: Operation[Any, Any], schema_of: Plain) -> Plain:
    described: Plain = {
        "operationId": operation.name,
        "summary": operation.summary,
        "description": operation.description,
        "parameters": _parameters(operation, schema_of),
        "responses": _responses(operation, schema_of),
    }
    if (body := body_of(operation)) is not None:
        schema = schema_of[str(body)]
        described["requestBody"] = {"required": True, "content": {_JSON: {"schema": schema}}}
    return described


def _parameters(operation: Operation[Any, Any], schema_of: Plain) -> list[Plain]:
    text = {"type": "string", "minLength": 1}
    in_path: Plain = {"in": "path", "required": True, "schema": text}
    parameters: list[Plain] = [{"name": name, **in_path} for name in path_names(operation)]
    parameters += [
        {
            "name": query_field.name,
            "in": "query",
            "required": query_field.required,
            "schema": schema_of[str(_without_none(query_field.type))],
            "description": description(query_field),
        }
        for query_field in query_fields(operation)
    ]
    conditions = ["If-None-Match"] if operation.method == "GET" else []
    if operation.has_condition:
        conditions = ["If-Match", "If-None-Match"] if operation.method == "PUT" else ["If-Match"]
    schema = {"type": "string"}
    parameters += [{"name": name, "in": "header", "schema": schema} for name in conditions]
    return parameters


def _without_none(kind: Any) -> Any:
    """A parameter that is left out is None; none can be given."""
    if get_origin(kind) is Annotated:
        return Annotated[(_without_none(get_args(kind)[0]), *get_args(kind)[1:])]
    kinds = [member for member in get_args(kind) if member is not type(None)]
    return reduce(or_, kinds) if type(None) in get_args(kind) else kind


def _responses(operation: Operation[Any, Any], schema_of: Plain) -> Plain:
    done: Plain = {"description": operation.summary}
    if operation.answer is not None:
        done["content"] = {_JSON: {"schema": schema_of[str(operation.answer)]}}
        done["headers"] = _ETAG if operation.method in {"GET", "PUT"} else {}
    status = HTTPStatus.NO_CONTENT if operation.answer is None else operation.status
    responses: Plain = {str(status.value): done}
    if operation.method == "PUT":
        responses[str(HTTPStatus.CREATED.value)] = {**done, "description": "It is new."}
    if operation.method == "GET":
        responses[str(HTTPStatus.NOT_MODIFIED.value)] = {
            "description": "The answer is the one that If-None-Match names."
        }
    of_bodies = _OF_BODIES if has_body(operation) else ()
    of_conditions = _OF_CONDITIONS if operation.has_condition else ()
    for code in (*_OF_EVERY, *of_bodies, *of_conditions):
        responses[str(code)] = {"$ref": "#/components/responses/Problem"}
    return responses
