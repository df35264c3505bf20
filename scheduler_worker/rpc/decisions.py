"""RPC methods for records of decisions, in namespace ``scheduler_worker``; see ``docs/rpc.md``."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta

from scheduler_worker.errors import RequestError
from scheduler_worker.model.kept_decisions import RESULTS, DecisionId, Result
from scheduler_worker.rpc import codec
from scheduler_worker.rpc.contract import Context, Endpoint
from scheduler_worker.rpc.worker import NAMESPACE, VERSION
from scheduler_worker.service.decisions.kept import (
    DEFAULT_LIMIT,
    MAX_LIMIT,
    MAX_TIME_S,
    DecisionQuery,
    KeptDecisions,
)

_Time = Annotated[float, Meta(ge=0.0, le=MAX_TIME_S)]


class DecisionsEndpoint:
    """Shows what was decided, and why."""

    def __init__(self, kept: KeptDecisions | None) -> None:
        """``kept`` is None where nothing is kept."""
        self._kept = kept

    def endpoint(self) -> Endpoint:
        """The methods of namespace ``scheduler_worker`` that are about records of decisions."""
        return Endpoint(
            NAMESPACE,
            VERSION,
            {"list_decisions": self.list_decisions, "get_decision": self.get_decision},
        )

    def list_decisions(
        self,
        context: Context,
        cluster: Any = None,
        instance: Any = None,
        project: Any = None,
        result: Any = None,
        host: Any = None,
        since_s: Any = None,
        until_s: Any = None,
        marker: Any = None,
        limit: Any = None,
        stored: Any = False,
    ) -> dict[str, Any]:
        """Return a page of decisions, the newest first; ``stored``: with what rehearsals need."""
        query = DecisionQuery(
            cluster=_name(cluster, "cluster"),
            instance=_name(instance, "instance"),
            project=_name(project, "project"),
            result=_result(result),
            host=_name(host, "host"),
            since_s=_time_s(since_s, "since_s"),
            until_s=_time_s(until_s, "until_s"),
            before=None if marker is None else _id(marker, "marker"),
        )
        if not isinstance(stored, bool):
            raise RequestError("stored", f"expected true or false, got {stored!r:.80}")
        reader = self._reader()
        found = reader.page(query, _limit(limit))
        plain = [codec.encode_kept_decision(each) for each in found.decisions]
        if stored:
            details = reader.stored_details([each.id for each in found.decisions])
            plain = [
                {**each, "details": None if some is None else some.decode()}
                for each, some in zip(plain, details, strict=True)
            ]
        return {
            "decisions": plain,
            "next": None if found.next is None else str(found.next),
        }

    def get_decision(self, context: Context, id: Any = None) -> dict[str, Any]:
        """Return one decision with all that is kept of it."""
        found = self._reader().get(_id(id, "id"))
        if found is None:
            raise RequestError("id", f"no decision {id} is kept; list_decisions has those that are")
        return codec.encode_kept_decision(found)

    def _reader(self) -> KeptDecisions:
        if self._kept is None:
            raise RequestError("[decisions] enabled", "is false, so that no decisions are kept")
        return self._kept


def _name(value: Any, path: str) -> str | None:
    return None if value is None else codec.decode_name(value, path)


def _time_s(value: Any, path: str) -> float | None:
    """Seconds since the epoch, or null. Raises RequestError."""
    return None if value is None else codec.decode_as(_Time, value, path)


def _result(value: Any) -> Result | None:
    """A result, or null. Raises RequestError, which names the results."""
    if value is not None and value not in RESULTS:
        expected = f"expected null or one of {', '.join(RESULTS)}"
        raise RequestError("result", f"{expected}, got {value!r:.80}")
    result: Result | None = value
    return result


def _id(value: Any, path: str) -> DecisionId:
    try:
        return DecisionId.parse(codec.decode_name(value, path))
    except ValueError as error:
        raise RequestError(path, str(error)) from None


def _limit(value: Any) -> int:
    return min(codec.decode_limit(value, default=DEFAULT_LIMIT), MAX_LIMIT)
