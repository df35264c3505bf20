"""Two workers and two API processes: attached policies are in force at once."""

import contextlib
import itertools
import sys
from pathlib import Path

import ovirtsdk4 as sdk
import pytest
from ovirtsdk4 import types

from scheduler_worker import conf
from scheduler_worker.backends.settings import PolicyStoreSettings
from scheduler_worker.backends.sql.migrate import PolicySchema
from scheduler_worker.client import SchedulerClient
from scheduler_worker.rpc.transport import Bus
from tests.support.patience import SOON_S
from tests.support.servers import free_port
from tests.support.services import host
from tests.support.web import PASSWORD, users_file
from tests.support.workers import WorkerProcess, write_config

PROGRAM = Path(sys.executable).with_name("scheduler-worker-api")
SPEC = {"flavor": {"vcpus": 1, "memory_mb": 512, "root_gb": 1}, "num_instances": 1}
CHANGES = 20


class Api:
    """An API process."""

    def __init__(self, directory, name, groups):
        port = free_port()
        self.url = f"http://127.0.0.1:{port}/ovirt-engine/api"
        config = write_config(
            directory / f"{name}.conf", **groups | {"api": groups["api"] | {"port": port}}
        )
        self.process = WorkerProcess(config, name=name, program=PROGRAM)
        self.process.await_log("Serving the REST API")

    @contextlib.contextmanager
    def connect(self):
        with sdk.Connection(
            url=self.url, username="anna", password=PASSWORD, insecure=True
        ) as found:
            yield found


@pytest.fixture
def groups(tmp_path, redis_url, postgres_server):
    url = postgres_server.create_database()
    schema = PolicySchema(PolicyStoreSettings(connection=url))
    schema.upgrade("head")
    schema.close()
    return {
        "DEFAULT": {"use_stderr": "true"},
        "state": {"url": redis_url},
        "policy_store": {"connection": url},
        "api": {"users_file": users_file(tmp_path, anna="administrator")},
    }


@pytest.fixture
def apis(tmp_path, groups):
    with contextlib.ExitStack() as stack:
        found = [Api(tmp_path, name, groups) for name in ("api-1", "api-2")]
        for each in found:
            stack.enter_context(each.process)
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
