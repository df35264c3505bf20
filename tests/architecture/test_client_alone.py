"""A client needs what it requires alone; the programs say in one line what they need beside it."""

import subprocess
import sys
from importlib.metadata import packages_distributions

import pytest
from packaging.utils import canonicalize_name

from tests.support.packages import requirements
from tests.support.patience import PROCESS_S

BROUGHT = {"oslo-log", "packaging"}
"""What the extra ``server`` names, and libraries of the client bring."""
SERVERS = requirements("server").keys() - requirements().keys() - BROUGHT
MISSING = {
    package
    for package, names in packages_distributions().items()
    if {canonicalize_name(each) for each in names} <= SERVERS
}
ALONE = f"""
import sys
class Missing:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name.partition(".")[0] in {MISSING}:
            raise ModuleNotFoundError(f"No module named {{name!r}}")
sys.meta_path.insert(0, Missing)
"""
IMPORTING = """
before = set(sys.modules)
import scheduler_worker.client
new = {each.partition(".")[0] for each in set(sys.modules) - before}
print(*sorted(new - sys.stdlib_module_names - {"scheduler_worker"}))
"""
CALLING = """
from oslo_config import cfg
from scheduler_worker import codec
from scheduler_worker.client import SchedulerClient
from scheduler_worker.model.decisions import Selection
from scheduler_worker.operations import balancing
from scheduler_worker.rpc import versions
from scheduler_worker.rpc.dispatcher import Endpoint
from scheduler_worker.rpc.transport import Bus
chosen = Selection(service_host="one", nodename="n", compute_node_uuid="u")
answer = [[codec.encode_selection(chosen)]]
listed = {"hosts": [{"host": "one"}], "next": None}
conf = cfg.ConfigOpts()
conf([])
with Bus(conf, url="local:/") as bus:
    server = bus.server("scheduler", "s", [
        Endpoint(None, versions.NOVA, {"select_destinations": lambda _context, **_: answer}),
        Endpoint(versions.NAMESPACE, versions.WORKER, {"list_hosts": lambda _context: listed}),
    ])
    server.start()
    client = SchedulerClient(bus)
    [[selection]] = client.select_destinations({"flavor": {}}, ["i"])
    print(selection.service_host, client.list_hosts()["hosts"])
    server.stop(5)
"""


def alone(program: str) -> subprocess.CompletedProcess[str]:
    """Run a program in an interpreter in which nothing of the server can be imported."""
    return subprocess.run(
        [sys.executable, "-c", f"{ALONE}{program}"],
        capture_output=True,
        text=True,
        timeout=PROCESS_S,
        check=False,
    )


def test_something_is_missing() -> None:
    assert {"numpy", "sqlalchemy", "cheroot", "werkzeug", "redis", "cliff"} <= MISSING


def test_a_client_calls_and_reads_answers() -> None:
    done = alone(CALLING)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "one [{'host': 'one'}]\n"


def test_importing_the_client_imports_no_library_of_the_bus() -> None:
    """Which would take ten times as long."""
    done = alone(IMPORTING)
    assert done.stdout.split() == ["msgspec", "typing_extensions"], done.stderr


@pytest.mark.parametrize(
    ("function", "program"),
    [
        ("worker", "scheduler-worker"),
        ("api", "scheduler-worker-api"),
        ("manage", "scheduler-worker-manage"),
        ("ctl", "scheduler-workerctl"),
    ],
)
def test_a_program_says_in_one_line_what_to_install(function: str, program: str) -> None:
    done = alone(f"from scheduler_worker import programs\nsys.exit(programs.{function}())")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        f"{program}: this program needs a package that is missing (No module named 'numpy'); "
        "run: pip install 'scheduler_worker[server]'\n"
    )
