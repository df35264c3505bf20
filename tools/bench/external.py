"""A warm call of an external unit, beside a new Python process for each call, as in oVirt.

``Rows`` is of the worker's own form and is asked host by host. As root it needs ``--python``, an
interpreter that has the worker and that the user ``nobody`` can read.
"""

import argparse
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench import fleet
from bench.table import percentile, show

UNIT = """
class Keep:
    def do_filter(self, hosts_ids, vm_id, args_map):
        print(hosts_ids[1:])
    def do_score(self, hosts_ids, vm_id, args_map):
        print([(each, 50) for each in hosts_ids])
"""

OWN_UNIT = """
from scheduler_worker.scheduling.plugin import Filter, Weigher
class Rows(Filter, Weigher):
    host_facts = ("free_ram_mb", "total_usable_ram_mb", "num_instances")
    def host_passes(self, host, spec):
        return host.free_ram_mb >= spec.flavor.memory_mb and host.num_instances < 100
    def weigh_host(self, host, spec):
        return host.free_ram_mb / host.total_usable_ram_mb
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--hosts", type=int, nargs="+", default=[10, 100, 1000])
    parser.add_argument("--calls", type=int, default=100)
    parser.add_argument("--python", default=sys.executable)


def run(arguments: argparse.Namespace) -> list[dict]:
    from scheduler_worker.backends.sandbox.pool import Sandboxes
    from scheduler_worker.backends.sandbox.settings import SandboxSettings

    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder)
        directory.chmod(0o755)
        for name, text in (("keep.py", UNIT), ("rows.py", OWN_UNIT)):
            (directory / name).write_text(text)
            (directory / name).chmod(0o644)
        sandboxes = Sandboxes(
            SandboxSettings(directory=directory, python=arguments.python, isolation=())
        )
        try:
            rows = [
                _measured(sandboxes, each, hosts, arguments.calls, directory)
                for file in sandboxes.refresh()
                for hosts in arguments.hosts
                for each in file.classes
            ]
        finally:
            sandboxes.close()
    show("One call of an external unit (ms)", rows)
    return rows


def _measured(
    sandboxes: Any, plugin: Any, hosts: int, calls: int, directory: Path
) -> dict[str, Any]:
    call = _call if plugin.own is None else _own_call
    warm_ms = _times_ms(call(sandboxes, plugin, hosts), calls)
    row: dict[str, Any] = {
        "unit": plugin.name,
        "kind": str(plugin.kind),
        "hosts": hosts,
        "warm_p50": percentile(warm_ms, 0.5),
        "warm_p99": percentile(warm_ms, 0.99),
        "new_process_p50": "",
    }
    if plugin.own is None:
        cold_ms = _times_ms(_cold_call(plugin, hosts, directory), max(3, calls // 10))
        row["new_process_p50"] = percentile(cold_ms, 0.5)
    return row


def _ids(hosts: int) -> list[str]:
    return [str(uuid.UUID(int=number)) for number in range(hosts)]


def _call(sandboxes: Any, plugin: Any, hosts: int) -> Callable[[], None]:
    from scheduler_worker.scheduling.catalogue import UnitKind
    from scheduler_worker.scheduling.external.contract import read_filter, read_scores
    from scheduler_worker.scheduling.external.units import PluginCall

    ids = _ids(hosts)
    question = PluginCall(plugin=plugin, hosts=ids, vm=ids[0], properties={})
    read = read_filter if plugin.kind is UnitKind.FILTER else read_scores

    def call() -> None:
        if sandboxes.ask(question, read) is None:
            raise SystemExit(f"the call failed: {sandboxes.trouble(plugin)}")

    return call


def _own_call(sandboxes: Any, plugin: Any, hosts: int) -> Callable[[], None]:
    """As the pipeline asks it, with what it takes to gather the facts."""
    from scheduler_worker.model.requests import Flavor, RequestSpec
    from scheduler_worker.scheduling.external.units import Plugins, unit_class
    from scheduler_worker.scheduling.plugin import UnitContext

    kind = unit_class(plugin)
    fields = kind.parameters_type()
    unit: Any = kind(
        UnitContext(name=plugin.name, parameters=fields, collaborators={Plugins: sandboxes})
    )
    hosts_table = fleet.table(fleet.reports(hosts), [])
    spec = RequestSpec(flavor=Flavor(vcpus=1, memory_mb=512))
    ask = unit.passes if hasattr(unit, "passes") else unit.weigh

    def call() -> None:
        ask(hosts_table, spec)
        if (why := unit.note()) is not None:
            raise SystemExit(why)

    return call


def _cold_call(plugin: Any, hosts: int, directory: Path) -> Callable[[], None]:
    ids = _ids(hosts)
    method = "do_filter" if plugin.kind == "filter" else "do_score"
    code = f"import keep; keep.Keep().{method}({ids!r}, {ids[0]!r}, {{}})"
    command = [sys.executable, "-c", code]

    def call() -> None:
        subprocess.run(command, cwd=directory, check=True, stdout=subprocess.PIPE)

    return call


def _times_ms(call: Callable[[], None], times: int) -> list[float]:
    call()
    found = []
    for _ in range(times):
        began_s = time.perf_counter()
        call()
        found.append(1000 * (time.perf_counter() - began_s))
    return found
