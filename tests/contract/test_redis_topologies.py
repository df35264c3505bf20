"""Several Redis servers: replicas that must have a write, sentinels, a cluster; and TLS."""

import contextlib
import uuid
from collections.abc import Callable, Iterator, Sequence
from typing import Any
from urllib.parse import quote

import pytest
import redis
from redis.crc import key_slot

from scheduler_worker.backends.redis.decision_log import RedisDecisionLog
from scheduler_worker.backends.redis.engine import RedisState
from scheduler_worker.decision_log import LogRecord
from scheduler_worker.errors import StaleFencingToken, StateUnavailable
from scheduler_worker.ports import ABSENT
from tests.support.certificates import Authority
from tests.support.patience import SOON_S, eventually
from tests.support.proxy import Proxy
from tests.support.servers import (
    LOOPBACK,
    RedisSentinel,
    RedisServer,
    free_port,
)
from tests.support.threads import Threads, in_thread

from .conftest import SCOPE
from .test_state import NEVER, acquire, guarded, put, records, seen, values

SLOTS = 16384
ELSEWHERE = "rack 2"
"""A scope of another shard than SCOPE."""


def ask(server: RedisServer, *words: Any) -> Any:
    with redis.Redis(LOOPBACK, server.port, **server.account) as client:
        return client.execute_command(*words)


def is_followed(master: RedisServer, by: int = 1) -> bool:
    """Whether so many replicas receive writes."""
    with redis.Redis(LOOPBACK, master.port, single_connection_client=True) as client:
        client.set(f"{{{quote(SCOPE)}}}", "")
        return client.wait(by, 100) == by


@pytest.fixture
def master(started, tmp_path) -> RedisServer:
    return started(RedisServer(tmp_path / "master"))


@pytest.fixture
def replica(started, tmp_path, master) -> RedisServer:
    of_master = f"{LOOPBACK} {master.port}"
    replica = started(RedisServer(tmp_path / "replica", replicaof=of_master))
    eventually(lambda: is_followed(master))
    return replica


@pytest.fixture
def second(started, tmp_path, master, replica) -> Any:
    second = started(RedisServer(tmp_path / "second", **replica.options))
    eventually(lambda: is_followed(master, by=2))
    return second


class TestReplicas:
    @pytest.fixture
    def state(self, master, connect) -> RedisState:
        return connect(master.url, wait_replicas=1)

    def test_a_write_that_returned_is_on_the_replica(self, state, replica):
        assert state.commit(acquire(state), [put("a", b"1")]).applied == (True,)
        assert ask(replica, "HGETALL", f"{state._base(SCOPE)}records")[b"a"] == b"1"

    def test_a_write_that_only_the_master_has_fails_until_a_retry(
        self, state, master, replica, connect
    ):
        hasty = connect(master.url, wait_replicas=1, socket_timeout_s=2.0)
        grant = acquire(state)
        with replica.paused():
            for _ in range(2):
                with pytest.raises(StateUnavailable, match=r"0 of the 1 replicas"):
                    hasty.commit(grant, [guarded("a", ABSENT)])
            with pytest.raises(StateUnavailable, match="wait_replicas"):
                hasty.write(SCOPE, [put("b")])
        eventually(lambda: is_followed(master))
        assert state.commit(grant, [guarded("a", ABSENT)]).applied == (True,)

    def test_a_refused_commit_is_refused_without_them(self, state, replica):
        grant = acquire(state)
        state.release(grant)
        with replica.paused(), pytest.raises(StaleFencingToken):
            state.commit(grant, [put("a")])

    def test_a_host_name_that_moves_to_another_server_is_followed(self, master, replica, connect):
        with Proxy(master.port) as proxy:
            state = connect(f"redis://{LOOPBACK}:{proxy.port}/0")
            state.write(SCOPE, [put("a", b"1")])
            known = seen(state.changes(SCOPE, NEVER))
            eventually(lambda: is_followed(master))
            ask(replica, "REPLICAOF", "NO", "ONE")
            ask(master, "REPLICAOF", LOOPBACK, replica.port)
            proxy._server_port = replica.port  # open connections stay
            state.write(SCOPE, [put("b", b"2")])
            again = state.changes(SCOPE, known)
            assert (again.reset, values(again)) == (True, {"a": b"1", "b": b"2"})

    def test_settings_that_do_not_ask_for_every_replica_have_a_warning(
        self, state, master, second, connect
    ):
        both = connect(master.url, wait_replicas=2)
        for each, required in ((state, 2), (both, 1)):
            ask(master, "CONFIG", "SET", "min-replicas-to-write", required)
            [warning] = each.check()
            assert "set [state] wait_replicas = 2" in warning
            assert "min-replicas-to-write 2" in warning
        ask(master, "CONFIG", "SET", "min-replicas-to-write", "2")
        assert both.check() == []

    def test_a_write_waits_for_enough_replicas(self, started, master, connect):
        state = connect(master.url, retry_for_s=SOON_S)
        ask(master, "CONFIG", "SET", "min-replicas-to-write", "1")
        writing = in_thread(state.write, SCOPE, [put("a")])
        eventually(lambda: "errorstat_NOREPLICAS" in ask(master, "INFO", "errorstats"))
        ask(master, "CONFIG", "SET", "min-replicas-to-write", "0")
        assert writing.result().applied == (True,)


class TestSentinel:
    @pytest.fixture
    def sentinel(self, started, tmp_path, master, replica) -> RedisSentinel:
        sentinel = started(RedisSentinel(tmp_path / "sentinel", master))
        followers = ask(master, "INFO", "replication")["connected_slaves"]

        def links() -> list[bytes]:
            found = ask(sentinel, "SENTINEL", "REPLICAS", "blue")
            return [each[b"master-link-status"] for each in found]

        eventually(lambda: links() == followers * [b"ok"])
        return sentinel

    def test_the_state_goes_on_with_the_next_master(self, sentinel, master, replica, connect):
        state = connect(sentinel.url, retry_for_s=SOON_S)
        ask(master, "CONFIG", "SET", "min-replicas-to-write", "1")
        written = state.write(SCOPE, [put("a", b"1")])
        held = acquire(state)
        known = seen(held.changes)
        waiting = in_thread(acquire, state)
        eventually(lambda: ask(master, "INFO", "clients")["blocked_clients"] == 1)
        ask(sentinel, "SENTINEL", "FAILOVER", "blue")
        eventually(lambda: ask(replica, "ROLE")[0] == b"master")
        master_address = ("SENTINEL", "GET-MASTER-ADDR-BY-NAME", "blue")
        eventually(lambda: int(ask(sentinel, *master_address)[1]) == replica.port)
        # The one before takes itself for the master still, but has no replica.
        committed = state.commit(held, [guarded("a", written.version, b"2")])
        assert committed.applied == (True,)
        again = state.changes(SCOPE, known)
        assert (again.reset, values(again)) == (True, {"a": b"2"})
        assert again.epoch != known.epoch
        assert values(waiting.result().changes) == {"a": b"2"}

    def test_an_answered_write_is_on_the_next_master_whichever_replica_that_is(
        self, master, replica, second, sentinel, connect
    ):
        for each in (master, replica, second):
            ask(each, "CONFIG", "SET", "min-replicas-to-write", "2")
        state = connect(sentinel.url, retry_for_s=SOON_S, wait_replicas=2)
        state.write(SCOPE, [put("before", b"1")])

        def promoted() -> list[RedisServer]:
            return [each for each in (replica, second) if ask(each, "ROLE")[0] == b"master"]

        ask(sentinel, "SENTINEL", "FAILOVER", "blue")
        eventually(lambda: promoted() != [])
        [after] = promoted()
        writing = in_thread(state.write, SCOPE, [put("during", b"2")])
        # The one before takes itself for the master still, and has the other replica.
        eventually(lambda: "errorstat_NOREPLICAS" in ask(master, "INFO", "errorstats"))
        ask(master, "REPLICAOF", LOOPBACK, after.port)  # as the sentinel does ten seconds later
        assert writing.result().applied == (True,)
        kept = ask(after, "HGETALL", f"{state._base(SCOPE)}records")
        assert (kept[b"before"], kept[b"during"]) == (b"1", b"2")


class TestTls:
    @pytest.fixture
    def tls_port(self, started, tmp_path, authority) -> int:
        certificate, key = authority.issue("redis", f"IP:{LOOPBACK}")
        files = {"tls_cert_file": certificate, "tls_key_file": key}
        port = free_port()
        started(RedisServer(tmp_path / "tls", tls_port=port, tls_auth_clients="no", **files))
        return port

    def test_a_server_with_a_trusted_certificate_is_used(self, tls_port, authority, connect):
        url = f"rediss://{LOOPBACK}:{tls_port}/0?ssl_ca_certs={authority.path}"
        state = connect(url)
        assert state.commit(acquire(state), [put("a")]).applied == (True,)
        assert state.check() == []

    @pytest.mark.parametrize("host", [LOOPBACK, "localhost"])
    def test_any_other_is_refused(self, tls_port, authority, tmp_path, host, connect):
        stranger = Authority(tmp_path, "stranger")
        trusted = stranger if host == LOOPBACK else authority  # its certificate names the address
        url = f"rediss://:secret@{host}:{tls_port}/0?ssl_ca_certs={trusted.path}"
        state = connect(url, retry_for_s=0.2)
        with pytest.raises(StateUnavailable, match="certificate verify failed") as caught:
            state.ping()
        assert "secret" not in str(caught.value)


def slot_of(scope: str) -> int:
    return key_slot(quote(scope).encode())


class Cluster:
    """Three masters with a third of the slots each, and a replica of the one that has SCOPE."""

    def __init__(self, servers: Sequence[RedisServer]) -> None:
        self.servers = servers
        masters, replica = servers[:3], servers[3]
        bounds = [SLOTS * n // 3 for n in range(4)]
        for n, server in enumerate(masters):
            ask(server, "CLUSTER", "ADDSLOTSRANGE", bounds[n], bounds[n + 1] - 1)
            ask(server, "CLUSTER", "SET-CONFIG-EPOCH", n + 1)
            ask(replica, "CLUSTER", "MEET", LOOPBACK, server.port, server.options["cluster_port"])
        for each in servers:
            eventually(lambda each=each: self._agrees(each), SOON_S)
        ask(replica, "CLUSTER", "REPLICATE", ask(self.owner(), "CLUSTER", "MYID"))
        eventually(lambda: is_followed(self.owner()))
        eventually(lambda: self.replica() is replica, SOON_S)

    @property
    def url(self) -> str:
        """Names two of them."""
        first, second, *_ = self.servers
        return f"redis+cluster://{LOOPBACK}:{first.port},{LOOPBACK}:{second.port}"

    def owner(self, scope: str = SCOPE) -> RedisServer:
        """The server that has the scope."""
        return self._holders(scope)[0]

    def replica(self) -> RedisServer | None:
        """Of the owner of SCOPE."""
        return (*self._holders(SCOPE), None)[1]

    def _holders(self, scope: str) -> list[RedisServer]:
        by_port = {server.port: server for server in self.servers}
        running = next(server for server in self.servers if server.is_running)
        for first, last, *holders in ask(running, "CLUSTER", "SLOTS"):
            if first <= slot_of(scope) <= last:
                return [by_port[port] for _, port, *_ in holders]
        raise AssertionError("no server has it")

    def _agrees(self, server: RedisServer) -> bool:
        info = ask(server, "CLUSTER", "INFO")
        return b"cluster_state:ok" in info and b"known_nodes:4" in info


@pytest.fixture(scope="module")
def cluster(redis_server, tmp_path_factory) -> Iterator[Cluster]:
    with contextlib.ExitStack() as stack:
        folder = tmp_path_factory.mktemp("cluster")
        options = {
            "cluster_enabled": "yes",
            "cluster_node_timeout": 2000,
            "cluster_replica_validity_factor": 0,
        }
        servers = [
            RedisServer(folder / str(n), cluster_port=free_port(), **options) for n in range(4)
        ]
        for server in servers:
            stack.callback(server.kill)
            server.start()
        yield Cluster(servers)


class TestCluster:
    @pytest.fixture
    def state(self, cluster, connect) -> RedisState:
        return connect(cluster.url, prefix=uuid.uuid4().hex, retry_for_s=SOON_S)

    def test_clusters_spread_over_the_servers(self, cluster, state):
        for n in range(20):
            scope = f"rack {n}"
            grant = state.acquire(scope, timeout_s=1.0, seen=NEVER)
            written = state.commit(grant, [put("a", b"%d" % n)])
            assert records(state, scope) == {"a": b"%d" % n}
            assert written.before == grant.changes.version
        state.ping()
        assert len(state._server._nodes.all()) == 3
        counts = [ask(server, "DBSIZE") for server in cluster.servers]
        assert len([count for count in counts if count]) >= 3

    def test_logs_of_decisions_spread_over_the_servers(self, cluster):
        log = RedisDecisionLog(cluster.url, prefix=uuid.uuid4().hex, retry_for_s=SOON_S)
        for n in range(20):
            log.append(f"rack {n}", [LogRecord((f"i{n}",), b"o", b"d")], once=f"{n}")
        for n in range(20):
            [found] = log.newest(f"rack {n}", count=9)
            assert log.of_instance(f"rack {n}", f"i{n}") == [found]
            assert log.get(f"rack {n}", found.position) == (found, b"d")
        log.close()

    def test_waiters_are_woken_and_large_scopes_are_read(self, cluster, connect):
        state = connect(cluster.url, prefix=uuid.uuid4().hex, max_changes=10)
        state.write(SCOPE, [put(f"k{n}") for n in range(2000)])
        grant = acquire(state)
        assert len(values(grant.changes)) == 2000
        with Threads(2) as pool:
            known = seen(grant.changes)
            watching = pool.submit(state.await_change, SCOPE, known, timeout_s=SOON_S)
            waiting = pool.submit(acquire, state)
            eventually(lambda: ask(cluster.owner(), "INFO", "clients")["blocked_clients"] == 2)
            state.commit(grant, [put("k0", b"new")])
            assert waiting.result().token > grant.token
            assert watching.result()

    def test_the_state_goes_on_after_a_failover(self, cluster, state):
        takeover = ("CLUSTER", "FAILOVER", "TAKEOVER")
        self.goes_on_after(cluster, state, lambda: ask(cluster.replica(), *takeover))

    def test_the_state_goes_on_after_a_crash(self, cluster, state):
        crashed = cluster.owner()
        self.goes_on_after(cluster, state, crashed.kill)
        crashed.start()
        eventually(lambda: cluster.replica() is crashed, SOON_S)

    def goes_on_after(
        self, cluster: Cluster, state: RedisState, happens: Callable[[], Any]
    ) -> None:
        assert cluster.owner(ELSEWHERE) is not cluster.owner()
        state.write(ELSEWHERE, [put("a")])
        unmoved = seen(state.changes(ELSEWHERE, NEVER))
        written = state.write(SCOPE, [put("a", b"1")])
        known = seen(state.changes(SCOPE, NEVER))
        held, before = acquire(state), cluster.owner()
        waiting = in_thread(acquire, state)
        eventually(lambda: ask(before, "INFO", "clients")["blocked_clients"] == 1)
        eventually(lambda: cluster.replica() is not None and is_followed(before))
        happens()
        eventually(lambda: cluster.owner() is not before, SOON_S)
        again = state.changes(SCOPE, known)
        assert (again.reset, values(again)) == (True, {"a": b"1"})
        assert again.epoch != known.epoch
        assert not state.changes(ELSEWHERE, unmoved).reset, "its server went on"
        committed = state.commit(held, [guarded("a", written.version, b"2")])
        assert committed.applied == (True,)
        assert values(waiting.result().changes) == {"a": b"2"}

    def test_a_call_waits_for_a_slot_that_moves(self, cluster, state):
        written = state.write(ELSEWHERE, [put("a", b"1")])
        source, slot = cluster.owner(ELSEWHERE), slot_of(ELSEWHERE)
        target = next(
            cluster.owner(f"rack {n}")
            for n in range(20)
            if cluster.owner(f"rack {n}") not in {source, cluster.owner()}
        )
        ids = {each: ask(each, "CLUSTER", "MYID") for each in (source, target)}
        ask(target, "CLUSTER", "SETSLOT", slot, "IMPORTING", ids[source])
        ask(source, "CLUSTER", "SETSLOT", slot, "MIGRATING", ids[target])
        writing = in_thread(state.write, ELSEWHERE, [guarded("a", written.version, b"2")], once="x")
        eventually(lambda: "errorstat_TRYAGAIN" in ask(source, "INFO", "errorstats"))
        keys = ask(source, "CLUSTER", "GETKEYSINSLOT", slot, 100)
        ask(source, "MIGRATE", LOOPBACK, target.port, "", 0, 5000, "KEYS", *keys)
        for each in (target, source):
            ask(each, "CLUSTER", "SETSLOT", slot, "NODE", ids[target])
        assert writing.result().applied == (True,)
        assert records(state, ELSEWHERE) == {"a": b"2"}

    def test_a_server_that_is_no_cluster_is_reported(self, redis_server, connect):
        url = f"redis+cluster://{LOOPBACK}:{redis_server.port}"
        state = connect(url)
        with pytest.raises(StateUnavailable, match="cluster support disabled"):
            state.ping()
