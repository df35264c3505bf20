"""One authenticated request, and the reply to it."""

from collections.abc import Collection as Members
from collections.abc import Mapping
from typing import NamedTuple, TypeVar

import msgspec

from scheduler_worker.api.codec import Collection, Form, read
from scheduler_worker.api.problems import Refusal
from scheduler_worker.api.resource_types import Action, Resource
from scheduler_worker.operations.callers import Caller

AnyResource = TypeVar("AnyResource", bound=Resource)
ROUTE = "scheduler_worker.route"
"""The key of a request's environment for the path that serves it: ``{name}`` is an argument."""
COMPLETE = Action(status="complete")


class Reply(NamedTuple):
    """What is answered; ``location`` is the path of what was created."""

    body: Resource | Collection
    status: int = 200
    location: str | None = None


class WebCall(msgspec.Struct, frozen=True, kw_only=True):
    """A request, after authentication."""

    caller: Caller
    version: int
    base: str
    """The path of the API's root, as the client wrote it."""
    query: Mapping[str, str]
    body: bytes
    body_form: Form

    def read(self, kind: type[AnyResource]) -> AnyResource:
        """The resource in the body. Raises MalformedBody."""
        return read(kind, self.body, self.body_form)

    def follows(self, known: Members[str]) -> frozenset[str]:
        """The links that are to be followed; letter case and underscores do not count.

        A path such as ``filters.scheduling_policy_unit`` includes the links before it. Raises
        Refusal for a link that is not known.
        """
        names = {_folded(link): link for link in known}
        links: set[str] = set()
        for path in self.query.get("follow", "").split(","):
            parts = path.strip().split(".")
            for length in range(1, len(parts) + 1 if parts[0] else 1):
                name = ".".join(parts[:length])
                if _folded(name) not in names:
                    raise Refusal(
                        400, f"[follow: there is no link {name!r}; known are {', '.join(known)}]"
                    )
                links.add(names[_folded(name)])
        return frozenset(links)

    def page(self, collection: Collection) -> Collection:
        """The first members of a collection, as many as ``max`` says; a negative one: all."""
        text = self.query.get("max")
        if text is None:
            return collection
        try:
            limit = int(text)
        except ValueError:
            raise Refusal(400, f"[max: {text!r} is not a whole number]") from None
        members = collection.members
        return collection._replace(members=members if limit < 0 else members[:limit])


def _folded(name: str) -> str:
    return name.replace("_", "").casefold()
