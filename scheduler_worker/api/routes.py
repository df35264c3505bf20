"""The routes of oVirt's API, below its root."""

from __future__ import annotations

from typing import Any, NamedTuple

from werkzeug.routing import Map, Rule

from scheduler_worker.api.calls import Reply, WebCall
from scheduler_worker.api.ovirt import OvirtApi
from scheduler_worker.scheduling.catalogue import UnitKind

_POLICY = "/schedulingpolicies/<policy_id>"
_KINDS = (
    ("filters", UnitKind.FILTER, "add_filter"),
    ("weights", UnitKind.WEIGHT, "add_weight"),
    ("balances", UnitKind.BALANCE, "add_balance"),
)


class Route(NamedTuple):
    """The method of :class:`OvirtApi` that serves a route, and what it gets beside the path."""

    method: str
    kind: UnitKind | None = None

    def serve(self, api: OvirtApi, call: WebCall, arguments: dict[str, Any]) -> Reply:
        """The reply to a call of this route."""
        if self.kind is not None:
            arguments = {**arguments, "kind": self.kind}
        reply: Reply = getattr(api, self.method)(call, **arguments)
        return reply


def _rule(http: str, path: str, method: str, kind: UnitKind | None = None) -> Rule:
    return Rule(path, methods=[http], endpoint=Route(method, kind))


def _rules() -> list[Rule]:
    rules = [
        _rule("GET", "/", "root"),
        _rule("GET", "/schedulingpolicyunits", "list_units"),
        _rule("GET", "/schedulingpolicyunits/<unit_id>", "get_unit"),
        _rule("DELETE", "/schedulingpolicyunits/<unit_id>", "remove_unit"),
        _rule("GET", "/schedulingpolicies", "list_policies"),
        _rule("POST", "/schedulingpolicies", "add_policy"),
        _rule("GET", _POLICY, "get_policy"),
        _rule("PUT", _POLICY, "update_policy"),
        _rule("DELETE", _POLICY, "remove_policy"),
        _rule("POST", f"{_POLICY}/clone", "clone_policy"),
        _rule("GET", f"{_POLICY}/clusters", "list_clusters_of"),
        _rule("GET", "/clusters", "list_clusters"),
        _rule("POST", "/clusters", "add_cluster"),
        _rule("GET", "/clusters/<cluster>", "get_cluster"),
        _rule("PUT", "/clusters/<cluster>", "update_cluster"),
    ]
    for name, kind, add in _KINDS:
        rules += [
            _rule("GET", f"{_POLICY}/{name}", "list_members", kind),
            _rule("POST", f"{_POLICY}/{name}", add),
            _rule("GET", f"{_POLICY}/{name}/<unit_id>", "get_member", kind),
            _rule("DELETE", f"{_POLICY}/{name}/<unit_id>", "remove_member", kind),
        ]
    return rules


ROUTES = Map(_rules(), strict_slashes=False)
