"""Decodes the resource providers in a host's report, in Placement's terms; checks their tree."""

from typing import Any

from scheduler_worker.codec.typed import typed
from scheduler_worker.errors import RequestError
from scheduler_worker.model.providers import ResourceProvider

MAX_PROVIDERS = 1000
"""Resource providers in one host's report."""

Parents = dict[str, str | None]


def reshape_providers(value: Any, path: str) -> list[ResourceProvider]:
    """Decode the providers of one host.

    Raises RequestError: a field is wrong, a uuid is repeated, or parents form a cycle.
    """
    reported: list[ResourceProvider] = typed(value, list[ResourceProvider], path)
    if len(reported) > MAX_PROVIDERS:
        raise RequestError(path, f"at most {MAX_PROVIDERS} of one host, got {len(reported)}")
    parents: Parents = {provider.uuid: provider.parent_provider_uuid for provider in reported}
    if len(parents) < len(reported):
        raise RequestError(path, "names a provider twice")
    rooted: set[str | None] = {None}
    for number, provider in enumerate(reported):
        if not _is_rooted(provider.uuid, parents, rooted):
            problem = "is its own ancestor: its parents form a cycle"
            raise RequestError(f"{path}[{number}].parent_provider_uuid", problem)
    return reported


def _is_rooted(uuid: str, parents: Parents, rooted: set[str | None]) -> bool:
    """Whether its ancestors end in a root; ``rooted`` collects the providers known to have one."""
    seen: set[str] = set()
    at: str | None = uuid
    while at is not None and at not in rooted:
        if at in seen:
            return False
        seen.add(at)
        at = parents.get(at)
    rooted |= seen
    return True
