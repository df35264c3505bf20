"""What ``/v1`` consists of: operations, each with its path, parameters, body and answer.

The routes, the checks of parameters and bodies, and the description in OpenAPI all follow from
these values, so they cannot differ.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Annotated, Any, Generic, NamedTuple, TypeVar
from urllib.parse import urlencode

import msgspec
from msgspec import UNSET, Meta, UnsetType
from werkzeug.datastructures import ETags
from werkzeug.http import parse_etags

from scheduler_worker.api.access import actor_of
from scheduler_worker.api.sessions import Caller
from scheduler_worker.api.v1.problems import Failed
from scheduler_worker.service.policies.audit import Actor

ROOT = "/v1"
DEFAULT_LIMIT = 100
MAX_LIMIT = 1000

Item = TypeVar("Item")
Limit = Annotated[
    int, Meta(ge=1, le=MAX_LIMIT, description="How many items a page has at the most.")
]
Marker = Annotated[
    str,
    Meta(max_length=1024, description="Where the page begins; `next` of the page before has it."),
]


class PageQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The parameters of every list. One that may be left out is UNSET: ``null`` is a text."""

    limit: Limit = DEFAULT_LIMIT
    marker: Marker | UnsetType = UNSET


def given(parameter: Item | UnsetType) -> Item | None:
    """A parameter, None if it was left out."""
    return None if parameter is UNSET else parameter


class Page(msgspec.Struct, Generic[Item], frozen=True):
    """A part of a list."""

    items: list[Item]
    next: str | None = None
    """The path of the next page; null: there is none."""


class Operation(NamedTuple):
    """One method on one path. ``serve`` gets the call and the path's arguments by name."""

    method: str
    path: str
    """Below :data:`ROOT`, with arguments as ``{name}``."""
    name: str
    """Unique among all; clients that are generated call their method so."""
    summary: str
    serve: Callable[..., Answer]
    answer: Any = None
    """The type of the body of the answer; None: there is no body."""
    query: type[msgspec.Struct] | None = None
    body: type[msgspec.Struct] | None = None
    conditions: tuple[str, ...] = ()
    """The headers of preconditions that a change heeds."""
    errors: tuple[HTTPStatus, ...] = ()
    """Statuses of its own, beside those that every operation may have."""
    status: HTTPStatus = HTTPStatus.OK
    creates: bool = False
    """Whether it may answer 201 instead."""

    @property
    def is_safe(self) -> bool:
        """Whether it only reads."""
        return self.method == "GET"

    @property
    def has_etag(self) -> bool:
        """Whether its answer is the resource itself, with an ETag."""
        return self.method in {"GET", "PUT"}


class Answer(NamedTuple):
    """What is answered."""

    body: Any = None
    status: HTTPStatus = HTTPStatus.OK
    next: str | None = None
    """The path of the next page, for the header ``Link``."""


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """A request to an operation, after authentication; query and body are converted."""

    caller: Caller
    request_id: str
    path: str
    """As the client wrote it."""
    parameters: Mapping[str, str] = {}
    query: Any = None
    body: Any = None
    if_match: str | None = None
    if_none_match: str | None = None

    @property
    def actor(self) -> Actor:
        """Who is named in the audit."""
        return actor_of(self.caller)

    def page(self, items: list[Item], marker: str | None) -> Answer:
        """A page of a list, with the link to the next where there is a marker for it."""
        following = None
        if marker is not None:
            following = f"{self.path}?{urlencode({**self.parameters, 'marker': marker})}"
        return Answer(Page(items, following), next=following)

    def check_match(self, resource: object, *, is_needed: bool = False) -> None:
        """Check the preconditions of a change of a resource, as it is now; None: there is none.

        Raises Failed with 412 where ``If-Match`` or ``If-None-Match`` does not hold, and with 428
        where an existing resource ``is_needed`` to be named by ``If-Match`` and is not.
        """
        now = None if resource is None else etag_of(msgspec.json.encode(resource))
        if self.if_match is not None and not _matches(parse_etags(self.if_match), now):
            raise Failed(
                HTTPStatus.PRECONDITION_FAILED,
                "If-Match: the resource has changed in the meantime; read it again.",
            )
        if self.if_none_match is not None and _matches(parse_etags(self.if_none_match), now):
            raise Failed(
                HTTPStatus.PRECONDITION_FAILED, "If-None-Match: there is such a resource already."
            )
        if is_needed and now is not None and self.if_match is None:
            raise Failed(
                HTTPStatus.PRECONDITION_REQUIRED,
                "The resource exists: send its ETag as If-Match, so that no change of others is "
                "lost, or If-Match: * to change it whatever it is.",
            )


def moment(seconds: float) -> datetime | None:
    """A time of the epoch; None where there is none: never, or for ever."""
    if not 0 < seconds < 1e11 or not math.isfinite(seconds):
        return None
    return datetime.fromtimestamp(seconds, UTC)


def etag_of(body: bytes) -> str:
    """The strong ETag of an answer: a digest of its bytes, without quotation marks."""
    return hashlib.sha256(body).hexdigest()[:32]


def _matches(wanted: ETags, now: str | None) -> bool:
    return now is not None and (wanted.star_tag or wanted.contains(now))
