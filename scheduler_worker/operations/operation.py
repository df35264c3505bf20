"""What an operation is: RPC, REST, the client, the command line and the reference follow from it.

::

    @operation("GET", "/reservations", columns={"Instance": "instance_uuid", "Host": "host"})
    def list_reservations(call: Call, query: ReservationQuery) -> Page[Reservation]:
        \"\"\"List the live reservations.\"\"\"

Its name, parameters, answer and description come from the function. No edge names a resource,
and a resource knows no edge: what belongs to HTTP alone is in ``api/bind.py``.
"""

from __future__ import annotations

import contextlib
import inspect
import math
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from http import HTTPStatus
from typing import TYPE_CHECKING, Annotated, Any, Final, Generic, Literal, TypeVar

import msgspec
from msgspec import Meta

from scheduler_worker.operations.callers import Caller, Right

if TYPE_CHECKING:
    from scheduler_worker.operations.rights import Access
    from scheduler_worker.operations.services import ApiUseCases, OneWorker, UseCases
    from scheduler_worker.service.documents.audit import Actor, Audit

Item = TypeVar("Item")
Parameters = TypeVar("Parameters", bound=msgspec.Struct)
Answer = TypeVar("Answer")
Moment = Annotated[datetime, Meta(tz=True)]
Home = Literal["fleet", "worker", "api"]
"""Who serves an operation: every worker and API process, by the shared state, or the one worker
that the parameter ``worker`` names, or the one API process that is asked."""
Column = str | tuple[str, str]
"""The path of a field, such as ``vcpus.used``; with ``age`` or ``left``: a time as a duration."""


class Nothing(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The parameters of an operation that takes none."""


class PageQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The parameters of every list."""

    limit: Annotated[int, Meta(ge=1, le=1000, description="Items of a page at most.")] = 100
    marker: Annotated[
        str | None, Meta(description="The beginning of the page: `next` of the page before it.")
    ] = None


DOCUMENT: Final = {"is_document": True}
"""``Meta(extra=DOCUMENT)`` says that a parameter is a text of many lines: a file's."""


class Page(msgspec.Struct, Generic[Item], frozen=True):
    """A part of a list."""

    items: list[Item]
    next: str | None = None
    """The marker of the next page, over REST its path; null: there is none."""


class Operation(msgspec.Struct, Generic[Parameters, Answer], frozen=True, kw_only=True, eq=False):
    """One thing that operators ask for; ``serve`` gets the call and its converted parameters."""

    name: str
    """Unique among all."""
    text: str
    """The description: a sentence, then what else there is to know."""
    method: Literal["GET", "POST", "PUT", "DELETE"]
    path: str | None
    """Over HTTP, with arguments as ``{name}``; None: it is served over RPC alone."""
    parameters: type[Parameters]
    answer: Any
    """The type; None: nothing is answered."""
    serve: Callable[[Call, Parameters], Answer]
    right: Right | None = Right.READ
    """What the caller must have a right to, somewhere; :meth:`Call.allow` narrows it. None: nothing
    is needed."""
    home: Home = "fleet"
    columns: Mapping[str, Column] = {}
    """Header -> field, of the tables of the command line; empty: all fields."""
    long: Mapping[str, Column] = {}
    """Further ones, with ``--long``."""
    command: str | None = None
    """Its name on the command line, such as ``host list``; None: it is none, or written by hand."""
    most: int | None = None
    """Rows that the command prints unless it is asked for others; None: all."""
    done: str = ""
    """What the command says of each thing that it was done to, such as ``released: {}``; also of
    the answer: ``{}: {.state}``."""
    status: HTTPStatus = HTTPStatus.OK
    has_condition: bool = False
    """Whether it heeds ``If-Match``: a change of a resource that others may have changed."""

    @property
    def summary(self) -> str:
        """The first sentence of the description."""
        return " ".join(self.text.split("\n\n")[0].split())

    @property
    def description(self) -> str:
        """What follows the first sentence."""
        return self.text.partition("\n\n")[2]

    @property
    def is_change(self) -> bool:
        """Whether it changes anything: it needs a right to more than to read."""
        return self.right not in {None, Right.READ, Right.READ_AUDIT}

    @property
    def is_list(self) -> bool:
        return typing.get_origin(self.answer) is Page

    @property
    def noun(self) -> str:
        """What a list calls its items over RPC: ``hosts`` of ``list_hosts``."""
        return self.name.partition("_")[2]

    @property
    def fields(self) -> Sequence[msgspec.structs.FieldInfo]:
        return msgspec.structs.fields(self.parameters)


class Call(msgspec.Struct, eq=False):
    """A request for an operation, over whichever edge it came."""

    operation: Operation[Any, Any]
    services: UseCases
    caller: Caller
    access: Access
    request_id: str = ""
    subject: str = ""
    """What the request is about, for the audit."""
    check_match: Callable[..., None] = lambda _resource, is_needed=True: None  # noqa: ARG005
    """Checks that the caller has seen a resource as it is now; None: there is none. Over HTTP it
    raises Refusal: 412 for another state, 428 where the caller names none and ``is_needed``."""
    is_new: bool = False
    """Whether what is answered was made by this call, where it might have been there."""

    @property
    def api(self) -> ApiUseCases:
        """What an API process alone has; for operations whose home it is."""
        assert self.services.api is not None  # noqa: S101 - else the operation is not bound
        return self.services.api

    @property
    def worker(self) -> OneWorker:
        """The worker that serves; for operations of one."""
        assert self.services.worker is not None  # noqa: S101 - else the operation is not bound
        return self.services.worker

    @property
    def actor(self) -> Actor:
        """Who is named in the audit, and whose right an edit checks when it is written."""
        return msgspec.structs.replace(
            self.caller.actor, check=lambda clusters: self.allow(*clusters)
        )

    def allow(self, *clusters: str) -> None:
        """Raises Forbidden unless the caller has the right in each of these; none: anywhere."""
        if (right := self.operation.right) is not None:
            self.access.check(self.caller, right, self.subject, clusters)

    def changing(
        self, action: str, subject: str, *, before: object = None, after: object = None
    ) -> contextlib.AbstractContextManager[None]:
        """Record a change of the shared state in the audit; the block makes it.

        ``before`` and ``after`` are values that JSON can hold; None: there is nothing.
        """
        audit: Audit = self.access.audit
        return audit.changing(self.actor, action, subject, before=_json(before), after=_json(after))


def _json(value: object) -> str | None:
    return None if value is None else msgspec.json.encode(value).decode()


def operation(
    method: Literal["GET", "POST", "PUT", "DELETE"], path: str | None, **details: Any
) -> Callable[[Callable[[Call, Parameters], Answer]], Operation[Parameters, Answer]]:
    """Make an operation of the function that serves it; ``details`` are the fields of Operation."""

    def made(serve: Callable[[Call, Parameters], Answer]) -> Operation[Parameters, Answer]:
        types = typing.get_type_hints(serve, include_extras=True)
        answer = types["return"]
        _, parameters = (kind for name, kind in types.items() if name != "return")
        return Operation(
            name=serve.__name__,
            text=inspect.getdoc(serve) or "",
            method=method,
            path=path,
            parameters=parameters,
            answer=None if answer is type(None) else answer,
            serve=serve,
            **details,
        )

    return made


def page_of(
    rows: Iterable[tuple[str, Item]], query: PageQuery, view: Callable[[Item], Answer]
) -> Page[Answer]:
    """The page of rows by key that a query asks for: those after its marker."""
    after = query.marker or ""
    following = sorted((row for row in rows if row[0] > after), key=lambda row: row[0])
    here = following[: query.limit]
    return Page([view(row) for _, row in here], here[-1][0] if len(following) > len(here) else None)


def moment(seconds: float | None) -> datetime | None:
    """A time of the epoch; None where there is none: never, or for ever."""
    if seconds is None or not 0 < seconds < 1e11 or not math.isfinite(seconds):
        return None
    return datetime.fromtimestamp(seconds, UTC)


def when(seconds: float) -> datetime:
    """A time of the epoch that is one."""
    return datetime.fromtimestamp(seconds, UTC)


def seconds_of(time: datetime | None) -> float | None:
    """A time as seconds of the epoch."""
    return None if time is None else time.timestamp()
