"""Parses ``[state] url`` for Redis: one server, sentinels, or a cluster."""

from collections.abc import Callable
from functools import partial
from typing import Any
from urllib.parse import SplitResult, parse_qsl, urlencode, urlsplit

from redis import Redis, exceptions
from redis.backoff import NoBackoff
from redis.connection import ConnectionPool, SSLConnection, parse_url
from redis.retry import Retry
from redis.sentinel import Sentinel, SentinelConnectionPool

from scheduler_worker.backends.redis.nodes import Address, ClusterNodes, Nodes, OneNode, RedisNode
from scheduler_worker.certificates import File, tls_context
from scheduler_worker.errors import ConfigError

REDIS_PORT = 6379
SENTINEL_PORT = 26379
UNLIMITED = 2**31
"""Connections of a pool: each thread has its own, and redis-py's default limit is 100."""

OpenPool = Callable[..., ConnectionPool]


class _SentinelClient(Redis):
    """A client that errors show by its address: redis-py puts the object itself into them."""

    def __repr__(self) -> str:
        options = self.connection_pool.connection_kwargs
        return f"{options['host']}:{options['port']}"


def without_account(url: str) -> str:
    """The URL's host and port, for messages: without user, password and options."""
    parts = urlsplit(url)
    return parts.netloc.rpartition("@")[2] or parts.path


def open_nodes(url: str, *, connect_timeout_s: float, socket_timeout_s: float) -> Nodes:
    """Parse the URL into its servers, without connecting. Raises ConfigError.

    The URL's query has options of redis-py's connections, such as ``ssl_ca_certs``.
    """
    options = {
        "socket_connect_timeout": connect_timeout_s,
        "retry": Retry(NoBackoff(), 0),  # only the caller retries, within its own bounds
        "protocol": 2,
        "max_connections": UNLIMITED,
    }
    node = partial(RedisNode, socket_timeout_s=socket_timeout_s)
    parts = urlsplit(url)
    name, kind = without_account(url), parts.scheme.partition("+")[2]
    try:
        if kind == "cluster":
            seeds, open_pool = _cluster(parts, options)
            return ClusterNodes(seeds, lambda at: node(partial(open_pool, **at._asdict())))
        if kind == "sentinel":
            return OneNode(
                name, node(_sentinel(parts, options | {"socket_timeout": socket_timeout_s}))
            )
        return OneNode(name, node(_checked(partial(ConnectionPool.from_url, url, **options))))
    except (ValueError, TypeError, exceptions.RedisError) as error:
        raise ConfigError(f"[state] url for {name} cannot be used: {error}") from error


def _cluster(parts: SplitResult, options: dict[str, Any]) -> tuple[list[Address], OpenPool]:
    """``redis+cluster://user:password@host:port,host:port``."""
    if parts.path.strip("/0"):
        raise ValueError("a cluster has no databases; write redis+cluster://host:port,host:port")
    return _hosts(parts, REDIS_PORT), _checked(partial(ConnectionPool, **_common(parts), **options))


def _sentinel(parts: SplitResult, options: dict[str, Any]) -> OpenPool:
    """``redis+sentinel://user:password@host:port,host:port/service/db``.

    The account is Redis's. ``?sentinel_username=user&sentinel_password=password`` is the
    sentinels' own.
    """
    service, _, database = parts.path.strip("/").partition("/")
    if not service:
        raise ValueError("write redis+sentinel://host:port,host:port/service/db")
    query = dict(parse_qsl(parts.query))
    named = {name: query.pop(f"sentinel_{name}", None) for name in ("username", "password")}
    common = _common(parts._replace(query=urlencode(query)))
    options["ssl"] = common.pop("connection_class", None) is SSLConnection
    of_sentinels = options | {key: common[key] for key in common if key.startswith("ssl_")} | named
    sentinel = Sentinel([])
    sentinel.sentinels = [
        _SentinelClient(*address, **of_sentinels) for address in _hosts(parts, SENTINEL_PORT)
    ]
    open_pool = partial(SentinelConnectionPool, service, sentinel)
    return _checked(partial(open_pool, db=int(database or 0), **common, **options))


def _common(parts: SplitResult) -> dict[str, Any]:
    """Options of the connections to all hosts of the URL: account, TLS, the query's options."""
    account, at, _ = parts.netloc.rpartition("@")
    base = parts.scheme.partition("+")[0]
    common: dict[str, Any] = parse_url(f"{base}://{account}{at}?{parts.query}")
    return common


def _hosts(parts: SplitResult, port: int) -> list[Address]:
    addresses = []
    for host in parts.netloc.rpartition("@")[2].split(","):
        place = urlsplit(f"//{host}")
        if not place.hostname:
            raise ValueError("it names no host")
        addresses.append(Address(place.hostname, place.port or port))
    return addresses


def _checked(open_pool: OpenPool) -> OpenPool:
    """Check that connections accept the options, which they would otherwise reject at first use."""
    pool = open_pool()
    pool.connection_class(**pool.connection_kwargs)
    options = pool.connection_kwargs
    names = ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile")
    tls_context(*(File(f"[state] url: {name}", options.get(name)) for name in names))
    return open_pool
