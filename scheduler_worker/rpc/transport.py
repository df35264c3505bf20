"""The message bus: our servers, and oslo.messaging's clients behind a small interface.

No name of oslo.messaging leaves this module. Handlers get a
:class:`~scheduler_worker.rpc.dispatcher.Context` and plain values, and raise our errors; callers
get RemoteFailure, CallTimeout and BusUnavailable. On the wire everything is as any oslo.messaging
peer expects it. What requests mean is not known here.

Worked around here, each with a test in ``tests/architecture/test_oslo_traps.py`` or
``tests/contract/test_transport.py``:

* a private ``ConfigOpts`` lacks option groups that oslo.messaging registers on its global one;
* its clients cannot fail within a bound while the broker is away.
"""

import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

from oslo_config import cfg

from scheduler_worker.errors import (
    BusUnavailable,
    CallTimeout,
    ConfigError,
    NobodyListens,
    RemoteFailure,
    Undeliverable,
)
from scheduler_worker.observer import Observer
from scheduler_worker.redaction import MASK
from scheduler_worker.rpc.amqp.check import QueueUse, queue_use, refusals
from scheduler_worker.rpc.amqp.connection import BrokerConnection
from scheduler_worker.rpc.amqp.copies import CopyConnection
from scheduler_worker.rpc.amqp.settings import AmqpSettings, amqp_settings
from scheduler_worker.rpc.defaults import DEFAULTS, EXCHANGE, RABBIT_DEFAULTS, SLOTS
from scheduler_worker.rpc.dispatcher import Dispatcher, Endpoint, check_names
from scheduler_worker.rpc.oslo import AWAY, failed, oslo_messaging
from scheduler_worker.rpc.serving.connection import Open
from scheduler_worker.rpc.serving.server import QueueServer
from scheduler_worker.rpc.serving.settings import BusSettings, DeliveryLimits, QueueNames
from scheduler_worker.rpc.slots import STUCK_S

# isort: split
from oslo_messaging import opts as oslo_opts
from oslo_messaging._metrics import client as metrics
from oslo_messaging._tracing import client as tracing

_MAX_PORT = 65535
_UNSET = {"opt_default", "set_default"}
_RABBIT = "oslo_messaging_rabbit"
_EMBEDDED_SCHEME = "local"
_SCHEMES = {"rabbit", "kombu", _EMBEDDED_SCHEME}
_PUBLISH_RETRIES = 2
"""A broken connection is retried for some seconds; then BusUnavailable is raised."""
_EMBEDDED = BusSettings(kind="local")
_CLOSE_S = 1.0
"""An idle reply queue takes up to 5 s to close, which is not waited for."""


def is_named(conf: cfg.ConfigOpts) -> bool:
    """Whether ``transport_url`` is set, so that clients and workers can meet."""
    if "transport_url" not in conf:
        register_opts(conf)
    return conf.get_location("transport_url").location.name not in _UNSET


def register_opts(conf: cfg.ConfigOpts) -> None:
    """Register options that oslo.messaging reads from ``conf`` but may register globally only.

    ``transport_url``, ``control_exchange`` and RabbitMQ's heartbeat get this project's defaults.
    """
    options = dict(oslo_opts.list_opts())
    conf.register_opts(options[None])
    conf.register_opts(options[_RABBIT], group=_RABBIT)
    conf.register_opts(metrics.oslo_messaging_metrics, group="oslo_messaging_metrics")
    conf.register_opts(tracing.oslo_messaging_tracing, group="oslo_messaging_tracing")
    for name, value in DEFAULTS.items():
        conf.set_default(name, value)
    for name, seconds in RABBIT_DEFAULTS.items():
        conf.set_default(name, seconds, group=_RABBIT)


def list_opts() -> list[tuple[str | None, list[Any]]]:
    """The options that oslo.messaging reads, by group."""
    return [(getattr(group, "name", group), list(opts)) for group, opts in oslo_opts.list_opts()]


class Bus(AbstractContextManager["Bus"]):
    """A connection to the message bus at ``transport_url``; to be closed with ``close``.

    ``url`` overrides the configured one. Safe to share between threads.
    Raises ConfigError for a URL that no driver supports.
    """

    def __init__(
        self, conf: cfg.ConfigOpts, *, url: str | None = None, exchange: str = EXCHANGE
    ) -> None:
        register_opts(conf)
        self._exchange = exchange
        self._modules = _RemoteModules()
        self._reached = threading.Event()
        try:
            parsed = oslo_messaging.TransportURL.parse(conf, url)
            if parsed.transport not in _SCHEMES:
                raise _unusable_url(f"no driver serves {parsed.transport!r}")
            self._transport = oslo_messaging.get_rpc_transport(conf, parsed, self._modules)
            for host in parsed.hosts:
                if host.port is not None and not 0 < host.port <= _MAX_PORT:
                    raise ValueError(f"{host.port} is no port")
        except (oslo_messaging.InvalidTransportURL, ValueError) as error:
            raise _unusable_url(_QUOTED.sub(MASK, str(error))) from None
        self.is_embedded = parsed.transport == _EMBEDDED_SCHEME
        """Whether its queues end with this process; else it is RabbitMQ."""
        addresses = [
            f"{host.hostname}:{host.port}" if host.port else str(host.hostname)
            for host in parsed.hosts
        ]
        self.url = f"{parsed.transport}://{','.join(addresses)}/{parsed.virtual_host or ''}"
        """The URL without credentials."""

    def server(
        self,
        topic: str,
        server: str,
        endpoints: Sequence[Endpoint],
        *,
        slots: int = SLOTS,
        limits: DeliveryLimits | None = None,
        observer: Observer | None = None,
        stuck_after_s: float = STUCK_S,
        comes_first: bool = True,
        reach: Callable[[], None] = lambda: None,
    ) -> QueueServer:
        """A server, not yet started, for a topic, for ``topic.server``, and for its fanout.

        ``slots`` requests are worked on at a time.
        Work that takes longer than ``stuck_after_s`` is a problem of the server. Without
        ``comes_first`` other consumers of the topic go before it, until it is told to come first.
        If it loses the state, it leaves the topic to others until ``reach`` raises nothing.
        Raises ConfigError for options that it does not support.
        """
        if self._transport.conf.rpc_ping_enabled:
            endpoints = [*endpoints, _PING]
        observer = observer or Observer()
        names = QueueNames(self._exchange, topic, server)
        settings: BusSettings
        if self.is_embedded:
            settings, openers = _EMBEDDED, [self._transport._driver.opener(names)]
        else:
            settings, openers = self._rabbit(BrokerConnection, names)
        return QueueServer(
            openers,
            settings,
            names,
            Dispatcher(endpoints, observer),
            slots=slots,
            limits=limits or DeliveryLimits(),
            observer=observer,
            stuck_after_s=stuck_after_s,
            comes_first=comes_first,
            reach=reach,
        )

    def _rabbit(
        self, connection: Callable[..., BrokerConnection], names: QueueNames
    ) -> tuple[AmqpSettings, list[Open]]:
        settings = self._amqp_settings()
        return settings, [
            partial(connection, settings, broker, names) for broker in settings.brokers
        ]

    def copies(
        self,
        topic: str,
        server: str,
        dispatcher: Dispatcher,
        *,
        max_messages: int,
        limits: DeliveryLimits,
        observer: Observer,
    ) -> QueueServer:
        """A server, not yet started, whose dispatcher gets a copy of each message of a topic.

        Others serve the topic meanwhile, and answer.

        Raises ConfigError where the bus is not RabbitMQ.
        """
        if self.is_embedded:
            raise ConfigError("[dry_run] enabled needs a [DEFAULT] transport_url with rabbit://")
        names = QueueNames(self._exchange, topic, server)
        connection = partial(
            CopyConnection, max_messages=max_messages, max_message_bytes=limits.max_message_bytes
        )
        settings, openers = self._rabbit(connection, names)
        return QueueServer(
            openers, settings, names, dispatcher, slots=1, limits=limits, observer=observer
        )

    def refusals(self, topic: str, server: str) -> Iterator[tuple[str, str | None]]:
        """Each broker's address, and why it would not serve such a server; None if it would.

        Empty where the bus is not RabbitMQ, which cannot be checked.
        """
        if not self.is_embedded:
            yield from refusals(self._amqp_settings(), QueueNames(self._exchange, topic, server))

    def queue_use(self, topic: str) -> QueueUse | None:
        """The queue of a topic; None without RabbitMQ. Raises BusUnavailable, ConfigError."""
        if self.is_embedded:
            return None
        return queue_use(self._amqp_settings(), QueueNames(self._exchange, topic, "doctor"))

    def _amqp_settings(self) -> AmqpSettings:
        driver = self._transport._driver
        return amqp_settings(driver.conf.oslo_messaging_rabbit, driver._url)

    def client(
        self,
        topic: str,
        *,
        exchange: str | None = None,
        server: str | None = None,
        namespace: str | None = None,
        version: str = "1.0",
        fanout: bool = False,
        timeout_s: float = 60.0,
        call_monitor_timeout_s: float | None = None,
    ) -> "Client":
        """A client of one interface.

        A call ends after ``timeout_s``, or after ``call_monitor_timeout_s`` without a heartbeat
        from the server. Raises Undeliverable for names that no broker takes.
        """
        try:
            check_names(topic=topic, server=server, exchange=exchange)
        except ValueError as error:
            raise Undeliverable(str(error)) from None
        target = oslo_messaging.Target(
            exchange=exchange or self._exchange,
            topic=topic,
            server=server,
            namespace=namespace,
            version=version,
            fanout=fanout,
        )
        prepared = oslo_messaging.get_rpc_client(
            self._transport,
            target,
            timeout=timeout_s,
            call_monitor_timeout=call_monitor_timeout_s,
            retry=_PUBLISH_RETRIES,
            transport_options=oslo_messaging.TransportOptions(at_least_once=True),
        ).prepare()
        return Client(prepared, self._modules, self._reached)

    def cast(
        self,
        *,
        topic: str,
        method: str,
        arguments: dict[str, object],
        exchange: str | None = None,
        server: str | None = None,
        namespace: str | None = None,
        version: str = "1.0",
    ) -> None:
        """Publish a cast; returns when the broker has it. Raises Undeliverable, BusUnavailable."""
        self.client(
            topic, exchange=exchange, server=server, namespace=namespace, version=version
        ).cast(method, {}, **arguments)

    def close(self) -> None:
        """Close all connections. Idempotent."""
        closing = threading.Thread(target=self._transport.cleanup, name="bus-close", daemon=True)
        closing.start()
        closing.join(_CLOSE_S)

    def __exit__(self, *_: object) -> None:
        self.close()


class Client:
    """Calls and casts to one interface on one topic; made by :meth:`Bus.client`."""

    def __init__(self, prepared: Any, modules: "_RemoteModules", reached: threading.Event) -> None:
        self._prepared = prepared
        self._modules = modules
        self._reached = reached

    def call(self, method: str, context: Mapping[str, object], /, **arguments: object) -> Any:
        """Returns the method's result.

        Raises:
            RemoteFailure: the method raised an error.
            CallTimeout: no answer, or no heartbeat, in time.
            BusUnavailable: the broker is away, or no server listens to the topic.
        """
        work = partial(self._prepared.call, dict(context), method, **arguments)
        if self._reached.is_set():
            return self._translated(work)
        answer = _bounded(partial(self._translated, work), self._prepared.timeout + _CLOSE_S)
        self._reached.set()
        return answer

    def cast(self, method: str, context: Mapping[str, object], /, **arguments: object) -> None:
        """Publish a cast. Raises BusUnavailable, as :meth:`call`; a fanout needs no listener."""
        self._translated(partial(self._prepared.cast, dict(context), method, **arguments))

    def _translated(self, work: Callable[[], Any]) -> Any:
        try:
            return work()
        except Exception as error:
            raise _as_ours(error, self._modules) from None


_PING = Endpoint(None, "1.0", {"oslo_rpc_server_ping": lambda _context, **_arguments: "pong"})


class _RemoteModules:
    """The modules whose errors a client rebuilds: none; remembers which was looked up last.

    A RemoteError has lost the module of the error, but oslo.messaging asks for it here, in the
    thread that gets the error.
    """

    def __init__(self) -> None:
        self._looked_up = threading.local()

    def __contains__(self, module: str) -> bool:
        self._looked_up.module = module
        return False

    @property
    def last(self) -> str:
        return str(getattr(self._looked_up, "module", ""))


def _as_ours(error: Exception, modules: _RemoteModules) -> Exception:
    match error:
        case oslo_messaging.RemoteError():
            return RemoteFailure(modules.last, str(error.exc_type), str(error.value))
        case oslo_messaging.MessagingTimeout():
            return CallTimeout(str(error))
        case oslo_messaging.MessageUndeliverable():
            return NobodyListens(f"Nobody listens to {error.routing_key} on {error.exchange}")
    # oslo.messaging rebuilds builtin errors, with the remote traceback after a line break.
    text, line_break, _ = str(error.args[0] if error.args else "").partition("\n")
    if line_break and type(error).__module__ == "builtins":
        return RemoteFailure("builtins", type(error).__name__, text)
    return failed(error) if isinstance(error, AWAY) else error


def _bounded(work: Callable[[], Any], timeout_s: float) -> Any:
    """Run the work in a thread of its own, for at most ``timeout_s``.

    The first call opens the reply queue, which oslo.messaging retries for ever while the broker is
    away. Raises BusUnavailable after ``timeout_s``.
    """
    outcome: Future[Any] = Future()

    def run() -> None:
        try:
            outcome.set_result(work())
        except Exception as error:  # raised below, in the caller's thread
            outcome.set_exception(error)

    threading.Thread(target=run, name="bus-first-call", daemon=True).start()
    try:
        return outcome.result(timeout_s)
    except TimeoutError:  # the work itself raises none
        raise BusUnavailable(f"The message bus could not be reached in {timeout_s:g} s") from None


_QUOTED = re.compile(r"""(["']).*\1""", re.DOTALL)
"""A quotation from the URL in an error message; it may be part of a password."""


def _unusable_url(why: str) -> ConfigError:
    return ConfigError(
        f"[DEFAULT] transport_url: {why}; write it like rabbit://host:5672/, with user:password@ "
        "before the host"
    )
