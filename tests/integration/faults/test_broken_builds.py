"""Defects that no test of parts would have to notice are noticed here, each time.

Each scene is played by the worker as it is, where all must be well, and by one with a defect.
"""

import contextlib
import uuid

import pytest
import redis

from scheduler_worker import codec, conf
from scheduler_worker.errors import RemoteFailure
from scheduler_worker.rpc.contract import Endpoint
from scheduler_worker.rpc.transport import Bus
from scheduler_worker.rpc.wire_errors import to_wire
from scheduler_worker.scheduling.options import ALL_FILTERS
from tests.integration.faults import broken
from tests.integration.faults.books import Books
from tests.integration.faults.filters import Pause
from tests.integration.faults.tenants import SPEC, Mailbox
from tests.support.amqp import Operator
from tests.support.handlers import in_thread
from tests.support.patience import SOON_S, eventually
from tests.support.services import host
from tests.support.workers import WorkerProcess, write_config

pytestmark = pytest.mark.deep

LEASE_S = 2.0
PLACED, REFUSED = "placed", "NoValidHost"


class Scene:
    """Workers on one cluster of one host with one vCPU, asked one by one."""

    def __init__(self, directory, rabbit_url: str, redis_url: str, open_: contextlib.ExitStack):
        self._directory, self._rabbit_url, self._redis_url = directory, rabbit_url, redis_url
        self._open = open_
        self.prefix = uuid.uuid4().hex
        self.books = Books(redis_url, self.prefix, ["default"])
        self.bus = open_.enter_context(Bus(conf.load(), url=rabbit_url))
        self.operator = open_.enter_context(contextlib.closing(Operator(rabbit_url)))

    def worker(self, name: str, *, defect: str | None = None, slots: int = 2) -> WorkerProcess:
        config = write_config(
            self._directory / f"{name}.conf",
            DEFAULT={"transport_url": self._rabbit_url, "host": name, "service_down_time": 600},
            rpc={"slots": slots},
            state={"url": self._redis_url, "prefix": self.prefix},
            cluster_lock={"hold_timeout": LEASE_S, "max_batch": 16},
            pending={"wait_timeout": 0},
            filter_scheduler={
                "available_filters": [
                    ALL_FILTERS,
                    "tests.integration.faults.filters.PausingFilter",
                ],
                "enabled_filters": "PausingFilter,ComputeFilter,CoreFilter",
            },
        )
        how = {"module": broken.__name__} if defect else {}
        found = WorkerProcess(config, *([defect] if defect else []), name=name, **how)
        return self._open.enter_context(found).ready()

    def report(self, vcpus: int = 1) -> None:
        ours = self.bus.client("scheduler", namespace="scheduler_worker", timeout_s=SOON_S)
        ours.call("update_hosts", {}, hosts=[host("h", vcpus=vcpus, cpu_allocation_ratio=1.0)])

    def ask(self, name: str, *, pause: Pause | None = None, fails: bool = False):
        """How one worker answers, in a queue."""
        client = self.bus.client("scheduler", server=name, version="4.5", timeout_s=3 * SOON_S)
        hints = {**(pause.hint if pause else {}), **({"fail": ["yes"]} if fails else {})}
        spec = {**SPEC, "scheduler_hints": hints}

        def call() -> str:
            try:
                instances = [str(uuid.uuid4())]
                options = {"return_objects": True, "return_alternates": False}
                [[chosen]] = client.call(
                    "select_destinations", {}, spec_obj=spec, instance_uuids=instances, **options
                )
                assert codec.decode_selection(chosen).service_host == "h"
            except RemoteFailure as failure:
                return failure.class_name
            return PLACED

        return in_thread(call)

    def holder(self) -> str:
        """The holder of the cluster's lock."""
        with redis.Redis.from_url(self._redis_url, decode_responses=True) as client:
            return client.hget(f"{self.prefix}:{{default}}:meta", "holder") or ""


@pytest.fixture
def scene(tmp_path, rabbit_vhost_url, redis_url):
    with contextlib.ExitStack() as open_:
        yield Scene(tmp_path, rabbit_vhost_url, redis_url, open_)


def with_and_without(defect):
    names = ["as it is", defect.__name__]
    return pytest.mark.parametrize("defect", [None, defect.__name__], ids=names)


@with_and_without(broken.commits_without_the_token)
def test_a_worker_that_was_paused_over_the_end_of_its_lease_reserves_nothing(
    scene, tmp_path, defect
):
    pause = Pause(tmp_path)
    one = scene.worker("one", defect=defect)
    scene.worker("two")
    scene.report()
    late = scene.ask("one", pause=pause)
    pause.wait_until_entered()
    with one.paused():
        assert scene.ask("two").get(timeout=SOON_S) == PLACED
    pause.let_go()
    answer, violations = late.get(timeout=SOON_S), list(scene.books.look().violations())
    if defect:
        assert (answer, violations) == (PLACED, ["h has 1 vCPUs and owes 2"])
    else:
        assert (answer, violations) == (REFUSED, [])


@with_and_without(broken.releases_what_others_hold)
def test_a_worker_that_was_paused_ends_no_lease_but_its_own(scene, tmp_path, defect):
    first, second = Pause(tmp_path), Pause(tmp_path)
    one = scene.worker("one", defect=defect)
    scene.worker("two")
    scene.report()
    late = scene.ask("one", pause=first, fails=True)  # it gives up the lock without a commit
    first.wait_until_entered()
    with one.paused():
        held = scene.ask("two", pause=second)
        second.wait_until_entered()
        holder = scene.holder()
    first.let_go()
    assert late.get(timeout=SOON_S) == "InternalError"
    assert scene.holder() == ("" if defect else holder)
    second.let_go()
    assert held.get(timeout=SOON_S) == PLACED


@with_and_without(broken.acknowledges_early)
def test_another_worker_finishes_the_work_of_a_killed_one(scene, tmp_path, defect):
    mailbox, pause = Mailbox(), Pause(tmp_path)
    endpoint = Endpoint(None, "1.0", {"destinations_selected": mailbox.take})
    answers = scene.bus.server("tenants", "scene", [endpoint], translate=to_wire)
    answers.start()

    def cast(hints=None) -> str:
        request_id = f"req-{uuid.uuid4()}"
        ours = scene.bus.client("scheduler", namespace="scheduler_worker")
        spec = {**SPEC, "scheduler_hints": hints or {}}
        ours.cast("request_destinations", {}, spec_obj=spec, request_id=request_id,
                  instance_uuids=[str(uuid.uuid4())], reply_to={"topic": "tenants"})  # fmt: skip
        return request_id

    one = scene.worker("one", defect=defect)
    scene.report(vcpus=8)
    begun = cast(pause.hint)
    pause.wait_until_entered()
    scene.worker("two", slots=1)
    one.kill()
    eventually(lambda: scene.operator.consumers("scheduler") == 1)
    # By now the broker has requeued what it may requeue. The other worker takes one at a time,
    # and may put it at the end once, to count it: the second of these comes after it.
    for _ in range(2):
        assert mailbox.wait_for(cast(), SOON_S)
    assert mailbox.count(begun) == (0 if defect else 1)
    answers.stop(1.0)
