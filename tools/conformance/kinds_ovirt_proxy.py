"""Calls of oVirt's external scheduler proxy, made of classes in real sandboxes.

The worker has no proxy: a policy names each class as a unit, and the pipeline combines them. So
only here the answers of several classes are put together as the proxy did.
"""

import contextlib
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from conformance import ovirt
from conformance.reading import Skipped
from scheduler_worker.backends.sandbox.pool import Sandboxes
from scheduler_worker.backends.sandbox.settings import SandboxSettings
from scheduler_worker.scheduling.catalogue import UnitKind
from scheduler_worker.scheduling.external.contract import (
    PluginClass,
    read_balance,
    read_filter,
    read_scores,
)
from scheduler_worker.scheduling.external.units import PluginCall

_GUID = "33333333-3333-3333-3333-333333333333"
_RECORDED = f'''
class test_plugin:
    def do_filter(self, hosts_ids, vm_id, args_map):
        """This is a simple filter that returns all given host ID"""
        print(hosts_ids)

    def do_score(self, hosts_ids, vm_id, args_map):
        """This is a simple score function that returns all given host ID with score 50"""
        print([(host, 50) for host in hosts_ids])

    def do_balance(self, hosts_ids, args_map):
        """This is a fake balance function that always return the guid {_GUID}"""
        print(("{_GUID}", [hosts_ids[0]]))


class test_failing_plugin:
    def do_filter(self, hosts_ids, vm_id, args_map):
        """This filter is expected to fail and should be used only in tests."""
        raise RuntimeError("expected")

    def do_score(self, hosts_ids, vm_id, args_map):
        """This function is expected to fail and should be used only in tests."""
        raise RuntimeError("expected")
'''
"""The two classes with which the proxy was recorded, after their description."""
_KINDS = {"filters": UnitKind.FILTER, "scores": UnitKind.WEIGHT, "balance": UnitKind.BALANCE}


def recognise(document: Any) -> bool:
    return ovirt.is_case(document, "args", "expected", "plugins")


def run(document: Any) -> Iterator[str]:
    name, arguments, expected = document["name"], document["args"], document["expected"]
    if name.startswith("system."):
        raise Skipped("there is no XML-RPC server; units are called by the worker itself")
    with _proxy() as proxy:
        found = getattr(proxy, name)(*arguments)
    if not document["result_order_matters"]:
        found, expected = _sorted(found), _sorted(expected)
    if found != expected:
        yield f"{name} gives {found}; expected is {expected}"


def _sorted(answer: Mapping[str, Any]) -> dict[str, Any]:
    return {**answer, "result": sorted(answer["result"])}


@contextlib.contextmanager
def _proxy() -> "Iterator[_Proxy]":
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder)
        directory.chmod(0o755)
        path = directory / "recorded.py"
        path.write_text(_RECORDED)
        path.chmod(0o644)
        sandboxes = Sandboxes(
            SandboxSettings(
                directory=directory, load_timeout_s=60, timeout_s=60, rest_s=0, isolation=()
            )
        )
        try:
            yield _Proxy(sandboxes, [each for file in sandboxes.refresh() for each in file.classes])
        finally:
            sandboxes.close()


class _Proxy:
    """The calls of the proxy, under its names."""

    def __init__(self, sandboxes: Sandboxes, classes: Sequence[PluginClass]) -> None:
        self._sandboxes = sandboxes
        self._classes = {(each.kind, each.name): each for each in classes}

    def discover(self) -> dict[str, dict[str, list[str]]]:
        return {
            name: {
                each.name: [
                    each.description,
                    ";".join("=".join(item) for item in each.parameters.items()),
                ]
                for each in self._classes.values()
                if each.kind is kind
            }
            for name, kind in _KINDS.items()
        }

    def runFilters(
        self, names: Sequence[str], hosts: list[str], vm: str, properties: dict[str, str]
    ) -> dict[str, Any]:
        kept, unknown = [], {}
        for name in names:
            if (plugin := self._classes.get((UnitKind.FILTER, name))) is None:
                unknown[name] = [f"plugin not found: {name!r}"]
                continue
            found = self._sandboxes.ask(_question(plugin, hosts, vm, properties), read_filter)
            if found is not None:
                kept.append(found)
        if not kept:
            return _result(1, hosts, unknown, ["all filters failed"])
        return _result(int(bool(unknown)), list(frozenset.intersection(*kept)), unknown)

    def runCostFunctions(
        self, names: Sequence[tuple[str, int]], hosts: list[str], vm: str, properties: dict
    ) -> dict[str, Any]:
        totals: dict[str, int] = {}
        for name, factor in names:
            plugin = self._classes[UnitKind.WEIGHT, name]
            found = self._sandboxes.ask(_question(plugin, hosts, vm, properties), read_scores) or {}
            for host, score in found.items():
                totals[host] = totals.get(host, 0) + factor * score
        return _result(0, [list(item) for item in totals.items()])

    def runLoadBalancing(self, name: str, hosts: list[str], properties: dict) -> dict[str, Any]:
        plugin = self._classes.get((UnitKind.BALANCE, name))
        if plugin is None:
            problem = f"Load balance requested but was not found: {name}"
            return _result(1, [], {name: [problem]})
        found = self._sandboxes.ask(_question(plugin, hosts, "", properties), read_balance)
        vm, destinations = found or ("", ())
        return _result(0, [vm, list(destinations)])


def _question(
    plugin: PluginClass, hosts: list[str], vm: str, properties: dict[str, str]
) -> PluginCall:
    return PluginCall(plugin=plugin, hosts=hosts, vm=vm, properties=properties)


def _result(
    code: int, result: list, plugin_errors: Mapping[str, list[str]] = {}, errors: Sequence[str] = ()
) -> dict[str, Any]:
    made: dict[str, Any] = {"result_code": code, "result": result}
    if plugin_errors:
        made["plugin_errors"] = dict(plugin_errors)
    if errors:
        made["errors"] = list(errors)
    return made
