"""Two workers and two API processes: attached policies are in force at once, and survive kills."""

import contextlib
import http
import itertools
import subprocess
import sys
import threading
from pathlib import Path

import ovirtsdk4 as sdk
import pycurl
import pytest
from ovirtsdk4 import types

from scheduler_worker import api_process, conf
from scheduler_worker.api.users import edited, new_user
from scheduler_worker.backends.settings import PolicyStoreSettings
from scheduler_worker.backends.sql.migrate import PolicySchema
from scheduler_worker.client import SchedulerClient
from scheduler_worker.operations.callers import Grant
from scheduler_worker.rpc.transport import Bus
from tests.support.patience import PROCESS_S, SOON_S, eventually
from tests.support.servers import free_port
from tests.support.services import host
from tests.support.workers import WorkerProcess, write_config

PROGRAM = Path(sys.executable).with_name("scheduler-worker-api")
PASSWORD = "correct horse"
SPEC = {"flavor": {"vcpus": 1, "memory_mb": 512, "root_gb": 1}, "num_instances": 1}
CHANGES, EDITS, KILLS = 20, 500, 5


class Api:
    """An API process, which can be killed and started again."""

    def __init__(self, directory, name, groups):
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}/ovirt-engine/api"
        self._log = directory / f"{name}.log"
        groups = {**groups, "api": {**groups["api"], "port": self.port}}
        self._config = write_config(directory / f"{name}.conf", **groups)
        self._process = None
        self.serves = threading.Event()

    def start(self):
        with self._log.open("w") as log:
            command = [str(PROGRAM), "--config-file", str(self._config)]
            self._process = subprocess.Popen(command, stderr=subprocess.STDOUT, stdout=log)
        eventually(self._has_started, PROCESS_S)
        self.serves.set()

    def _has_started(self):
        text = self._log.read_text()
        assert self._process.poll() is None, text
        return "Serving the REST API" in text

    def kill(self):
        self.serves.clear()
        self._process.kill()
        self._process.wait(PROCESS_S)

    @contextlib.contextmanager
    def connect(self):
        connection = sdk.Connection(url=self.url, username="anna", password=PASSWORD, insecure=True)
        try:
            yield connection
        finally:
            connection.close(logout=False)  # which would need the process


@pytest.fixture
def groups(tmp_path, redis_url, postgres_server):
    users_file = tmp_path / "users.yaml"
    with edited(users_file) as users:
        users["anna"] = new_user("anna", PASSWORD, (Grant("administrator"),))
    url = postgres_server.create_database()
    schema = PolicySchema(PolicyStoreSettings(connection=url))
    schema.upgrade("head")
    schema.close()
    return {
        "DEFAULT": {"use_stderr": "true"},
        "state": {"url": redis_url},
        "policy_store": {"connection": url},
        "api": {"users_file": users_file},
    }


@pytest.fixture
def apis(tmp_path, groups):
    with contextlib.ExitStack() as stack:
        found = [Api(tmp_path, name, groups) for name in ("api-1", "api-2")]
        for each in found:
            each.start()
            stack.callback(each.kill)
        yield found


def attach(connection, policy_id):
    clusters = connection.system_service().clusters_service()
    [cluster] = clusters.list()
    wanted = types.Cluster(scheduling_policy=types.SchedulingPolicy(id=policy_id))
    clusters.cluster_service(cluster.id).update(wanted)


def preferring(connection, name, factor):
    """A policy that prefers hosts with much free memory, or with little."""
    system = connection.system_service()
    units = {each.name: each.id for each in system.scheduling_policy_units_service().list()}
    policies = system.scheduling_policies_service()
    policy = policies.add(types.SchedulingPolicy(name=name))
    unit = types.SchedulingPolicyUnit(id=units["RAMWeigher"])
    weights = policies.policy_service(policy.id).weights_service()
    weights.add(types.Weight(factor=factor, scheduling_policy_unit=unit))
    return policy.id


def is_stored(policy, words):
    """Whether an edit is stored; False: another one was first."""
    try:
        policy.update(words)
    except sdk.Error as error:
        if error.code != http.HTTPStatus.CONFLICT:
            raise
        return False
    return True


@pytest.mark.deep
def test_the_next_decision_of_every_worker_follows_an_attachment(
    tmp_path, groups, apis, rabbit_vhost_url
):
    with contextlib.ExitStack() as stack:
        bus = stack.enter_context(Bus(conf.load(), url=rabbit_vhost_url))
        for name in ("one", "two"):
            config = write_config(
                tmp_path / f"{name}.conf",
                DEFAULT={"transport_url": rabbit_vhost_url, "host": name},
                rpc={"topic": name},
                state=groups["state"],
            )
            stack.enter_context(WorkerProcess(config, name=name)).ready()
        workers = [SchedulerClient(bus, topic=name, timeout_s=SOON_S) for name in ("one", "two")]
        workers[0].update_hosts([host("small", memory_mb=65536), host("large", memory_mb=262144)])
        desks = [stack.enter_context(each.connect()) for each in apis]
        policies = {
            "large": preferring(desks[0], "much memory", 1),
            "small": preferring(desks[1], "little memory", -1),
        }
        instances = (f"i{number}" for number in itertools.count())
        for number in range(CHANGES):
            wanted = ("small", "large")[number % 2]
            attach(desks[number // 2 % 2], policies[wanted])
            chosen = [
                worker.select_destinations(SPEC, [next(instances)])[0][0].service_host
                for worker in workers
            ]
            assert chosen == [wanted, wanted]


@pytest.mark.deep
def test_kills_in_the_middle_of_edits_leave_store_and_state_alike(tmp_path, groups, apis):
    with apis[0].connect() as connection:
        policies = connection.system_service().scheduling_policies_service()
        policy_id = policies.add(types.SchedulingPolicy(name="edited")).id
        attach(connection, policy_id)
    turn, numbers = threading.Lock(), itertools.count(1)
    answered = []

    def edit(api):
        """Edits through one process, again and again while it is down, until enough are made."""
        while len(answered) < EDITS:
            api.serves.wait(PROCESS_S)
            with contextlib.suppress(sdk.Error, pycurl.error), api.connect() as connection:
                policies = connection.system_service().scheduling_policies_service()
                policy = policies.policy_service(policy_id)
                while len(answered) < EDITS:
                    with turn:
                        number = next(numbers)
                    words = types.SchedulingPolicy(name=f"edit {number}", description=f"{number}")
                    if is_stored(policy, words):
                        answered.append(number)

    threads = [threading.Thread(target=edit, args=(each,), daemon=True) for each in apis]
    for each in threads:
        each.start()
    for kill in range(KILLS):
        enough = (kill + 1) * EDITS // (KILLS + 1)
        eventually(lambda enough=enough: len(answered) >= enough)
        killed = apis[kill % 2]
        killed.kill()
        killed.start()
    for each in threads:
        each.join(SOON_S)
    assert not any(each.is_alive() for each in threads)

    with built(tmp_path, groups) as api:  # its reconciler settles what a kill has left at the start
        stored = api.administration.library.policy(policy_id).document
        replica = api._fleet.cluster("default")
        with replica.lock:
            replica.refresh(api._fleet.store)
        assert stored.name == f"edit {stored.description}"
        assert replica.policy == stored
        # Refused edits store nothing; each answered one is a version, as is one not heard of.
        assert 0 <= stored.version - 1 - len(answered) <= KILLS


@contextlib.contextmanager
def built(directory, groups):
    groups = {**groups, "api": {**groups["api"], "port": free_port()}}
    config = write_config(directory / "built.conf", **groups)
    with api_process.build(conf.load(["--config-file", str(config)])).running() as api:
        yield api
