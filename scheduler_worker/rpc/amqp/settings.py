"""Settings of connections to RabbitMQ: brokers, TLS, backoff, and kinds of queues."""

import ssl
from collections.abc import Mapping
from typing import Any

import msgspec

from scheduler_worker.certificates import File, tls_context
from scheduler_worker.errors import ConfigError
from scheduler_worker.rpc.serving.settings import BusSettings

DEAD_LETTERS = 10_000
"""How many dead letters are kept; the oldest go first."""


class Broker(msgspec.Struct, frozen=True):
    """One host of a cluster of brokers; its ``repr`` has no credentials."""

    host: str
    port: int
    user: str
    password: str

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"

    def __repr__(self) -> str:
        return self.address


class AmqpSettings(BusSettings, frozen=True, kw_only=True):
    """``[oslo_messaging_rabbit]`` and the URL, as the server side needs them. Times in seconds."""

    kind: str = "amqp"
    brokers: tuple[Broker, ...]
    vhost: str
    login_method: str
    tls: ssl.SSLContext | None
    heartbeat_s: int
    durable: bool
    auto_delete: bool
    queue_arguments: Mapping[str, Any]
    fanout_durable: bool
    fanout_arguments: Mapping[str, Any]
    expires_ms: int = 0
    """How long a worker's own queues outlive it; 0: for ever."""

    def is_quorum(self, *, fanout: bool) -> bool:
        """Whether a queue is a quorum queue, where the broker counts deliveries itself."""
        arguments = self.fanout_arguments if fanout else self.queue_arguments
        return arguments.get("x-queue-type") == "quorum"


def amqp_settings(options: Any, url: Any) -> AmqpSettings:
    """Read oslo.messaging's options for RabbitMQ.

    Raises ConfigError for options that the server does not support, or that contradict each other.
    """
    if options.rabbit_quorum_queue and options.rabbit_ha_queues:
        raise ConfigError(
            "[oslo_messaging_rabbit] rabbit_quorum_queue and rabbit_ha_queues exclude each other; "
            "set rabbit_ha_queues = false"
        )
    mirrored = {"x-ha-policy": "all"} if options.rabbit_ha_queues else {}
    bounds = {
        "x-delivery-limit": options.rabbit_quorum_delivery_limit,
        "x-max-in-memory-length": options.rabbit_quorum_max_memory_length,
        "x-max-in-memory-bytes": options.rabbit_quorum_max_memory_bytes,
    }
    quorum = {"x-queue-type": "quorum", **{name: most for name, most in bounds.items() if most}}
    # Certificates are always verified: against ``ssl_ca_file``, or the system's authorities.
    names = ("ssl_ca_file", "ssl_cert_file", "ssl_key_file")
    files = [File(f"[oslo_messaging_rabbit] {name}", options[name]) for name in names]
    ttl_s = options.rabbit_transient_queues_ttl
    expiry = {"x-expires": ttl_s * 1000} if ttl_s > 0 else {}
    return AmqpSettings(
        brokers=tuple(
            Broker(
                host.hostname or "localhost",
                host.port or (5671 if options.ssl else 5672),
                host.username or "guest",
                host.password or "guest",
            )
            for host in url.hosts
        )
        or (Broker("localhost", 5672, "guest", "guest"),),
        vhost=url.virtual_host or "/",
        login_method=options.rabbit_login_method,
        tls=tls_context(*files) if options.ssl else None,
        heartbeat_s=int(options.heartbeat_timeout_threshold),
        retry_s=max(0.1, float(options.rabbit_retry_interval)),
        retry_backoff_s=float(options.rabbit_retry_backoff),
        longest_retry_s=float(options.rabbit_interval_max),
        durable=options.amqp_durable_queues or options.rabbit_quorum_queue,
        auto_delete=options.amqp_auto_delete,
        queue_arguments={**mirrored, **(quorum if options.rabbit_quorum_queue else {})},
        fanout_durable=options.rabbit_transient_quorum_queue,
        fanout_arguments={
            **mirrored,
            **(quorum if options.rabbit_transient_quorum_queue else {}),
            **expiry,
        },
        expires_ms=max(0, ttl_s) * 1000,
        find_caller_s=float(options.kombu_missing_consumer_retry_timeout),
    )
