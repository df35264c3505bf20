"""The bus: requests in, answers and casts out; oslo.messaging behind a small face.

None of oslo.messaging's names leave this room. Handlers get a
:class:`~scheduler_worker.rpc.contract.Context` and plain values, and raise our errors; callers get
RemoteFailure, CallTimeout and BusUnavailable. On the wire everything is as any oslo.messaging peer
expects it. What requests mean is none of this room's business.

What is hidden here, each with a test in ``tests/architecture/test_oslo_traps.py`` or
``tests/contract/test_transport.py``:

* a private ``ConfigOpts`` lacks option groups that oslo.messaging registers on its global one;
* oslo's dispatcher reads the global configuration, and leaks a thread for each unknown method
  that is called with a call monitor;
* its servers cannot be stopped within a bound, and its clients cannot fail within one while the
  broker is away.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import Any, Self

from oslo_config import cfg

from scheduler_worker.errors import (
    BusUnavailable,
    CallTimeout,
    ConfigError,
    RemoteFailure,
    Undeliverable,
)
from scheduler_worker.ports import Observer
from scheduler_worker.rpc.amqp.server import AmqpServer
from scheduler_worker.rpc.amqp.settings import DeliveryLimits, Place, amqp_settings
from scheduler_worker.rpc.contract import Endpoint
from scheduler_worker.rpc.dispatcher import Dispatcher, Translate
from scheduler_worker.rpc.oslo import AWAY, oslo_messaging, unavailable
from scheduler_worker.rpc.oslo_server import OsloServer
from scheduler_worker.rpc.server import Server

# isort: split
from oslo_messaging import opts as oslo_opts
from oslo_messaging._metrics import client as metrics
from oslo_messaging._tracing import client as tracing

EMBEDDED_URL = "local:/"
"""The bus inside this process, where no other is configured."""

_PUBLISH_RETRIES = 2
"""A broken connection is retried for some seconds; then the caller hears that the bus is away."""
_CLOSE_S = 1.0
"""A reply queue that has been idle takes up to 5 s to close; nobody has to wait for it."""


def register_opts(conf: cfg.ConfigOpts) -> None:
    """Register what oslo.messaging reads of ``conf`` but may register on its global one only.

    ``transport_url`` and ``control_exchange`` get this project's defaults.
    """
    conf.register_opts(dict(oslo_opts.list_opts())[None])
    conf.register_opts(metrics.oslo_messaging_metrics, group="oslo_messaging_metrics")
    conf.register_opts(tracing.oslo_messaging_tracing, group="oslo_messaging_tracing")
    conf.set_default("transport_url", EMBEDDED_URL)
    conf.set_default("control_exchange", "nova")


class Bus:
    """A connection to the message bus that ``transport_url`` names; give it back with ``close``.

    ``url`` overrides the configured one, ``default_url`` stands in where none is configured.
    Safe to share between threads. Raises ConfigError for a URL that no driver serves.
    """

    def __init__(
        self,
        conf: cfg.ConfigOpts,
        *,
        url: str | None = None,
        default_url: str = EMBEDDED_URL,
        exchange: str = "nova",
        allowed_remote_exmods: Sequence[str] = (),
    ) -> None:
        register_opts(conf)
        conf.set_default("transport_url", default_url)
        self._exchange = exchange
        self._modules = _RemoteModules(allowed_remote_exmods)
        self._reached = threading.Event()
        try:
            parsed = oslo_messaging.TransportURL.parse(conf, url)
            self._transport = oslo_messaging.get_rpc_transport(conf, parsed, self._modules)
        except (
            oslo_messaging.InvalidTransportURL,
            oslo_messaging.DriverLoadFailure,
            ValueError,
        ) as error:
            raise ConfigError(f"[DEFAULT] transport_url: {error}") from None
        self._is_rabbit = parsed.transport in {"rabbit", "kombu"}
        self.url = _without_credentials(parsed)
        """Where the bus is; never who we are there."""

    def server(
        self,
        topic: str,
        server: str,
        endpoints: Sequence[Endpoint],
        *,
        translate: Translate,
        slots: int = 16,
        kind: str = "amqp",
        limits: DeliveryLimits | None = None,
        observer: Observer | None = None,
    ) -> Server:
        """A server, not yet started, for a topic, for ``topic.server``, and for its fanout.

        ``slots`` requests are worked on at a time. ``translate`` says what an exception of a
        handler looks like on the wire. ``kind`` is ours (``amqp``, where the bus is RabbitMQ) or
        oslo.messaging's own (``oslo``). Raises ConfigError for options that it cannot serve.
        """
        if self._transport.conf.rpc_ping_enabled:
            endpoints = [*endpoints, _PING]
        observer = observer or Observer()
        dispatcher = Dispatcher(endpoints, translate, observer)
        target = self._target(topic=topic, server=server)
        if kind == "amqp" and self._is_rabbit:
            place = Place(self._exchange, topic, server)
            driver = self._transport._driver
            settings = amqp_settings(driver.conf.oslo_messaging_rabbit, driver._url)
            return AmqpServer(
                settings,
                place,
                dispatcher,
                slots=slots,
                limits=limits or DeliveryLimits(),
                observer=observer,
            )
        return OsloServer(self._transport, target, dispatcher, slots=slots, observer=observer)

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
    ) -> Client:
        """A caller of one interface.

        A call ends after ``timeout_s``, and already after ``call_monitor_timeout_s`` without a
        sign of life from the server.
        """
        target = self._target(
            exchange=exchange,
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
        """Publish a cast; returns when the broker has it. Raises BusUnavailable."""
        self.client(
            topic, exchange=exchange, server=server, namespace=namespace, version=version
        ).cast(method, {}, **arguments)

    def close(self) -> None:
        """Give back connections; harmless when repeated."""
        closing = threading.Thread(target=self._transport.cleanup, name="bus-close", daemon=True)
        closing.start()
        closing.join(_CLOSE_S)

    def _target(self, *, exchange: str | None = None, **parts: object) -> oslo_messaging.Target:
        return oslo_messaging.Target(exchange=exchange or self._exchange, **parts)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class Client:
    """Calls and casts to one interface on one topic; made by :meth:`Bus.client`."""

    def __init__(self, prepared: Any, modules: _RemoteModules, reached: threading.Event) -> None:
        self._prepared = prepared
        self._modules = modules
        self._reached = reached

    def call(self, method: str, context: Mapping[str, object], /, **arguments: object) -> Any:
        """The method's answer.

        Raises:
            RemoteFailure: the method raised an error.
            CallTimeout: no answer, or no sign of life, in time.
            BusUnavailable: the broker is away, or nobody serves the topic.

        """
        work = partial(self._prepared.call, dict(context), method, **arguments)
        if self._reached.is_set():
            return self._translated(work)
        answer = _bounded(partial(self._translated, work), self._prepared.timeout + _CLOSE_S)
        self._reached.set()
        return answer

    def cast(self, method: str, context: Mapping[str, object], /, **arguments: object) -> None:
        """Hand the message to the broker. Raises BusUnavailable (a fanout needs no listener)."""
        self._translated(partial(self._prepared.cast, dict(context), method, **arguments))

    def close(self) -> None:
        """A client holds nothing of its own; the bus holds the connections."""

    def _translated(self, work: Callable[[], Any]) -> Any:
        try:
            return work()
        except Exception as error:
            raise _as_ours(error, self._modules) from None


_PING = Endpoint(None, "1.0", {"oslo_rpc_server_ping": lambda _context, **_arguments: "pong"})


class _RemoteModules:
    """The modules whose errors a client rebuilds; remembers which one was asked for last.

    A RemoteError has lost the module of the error, but in the thread that gets it oslo.messaging
    has looked for the module here.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self._names = frozenset(names)
        self._asked = threading.local()

    def __contains__(self, module: str) -> bool:
        self._asked.module = module
        return module in self._names

    @property
    def last(self) -> str:
        return str(getattr(self._asked, "module", ""))


def _as_ours(error: Exception, modules: _RemoteModules) -> Exception:
    match error:
        case oslo_messaging.RemoteError():
            return RemoteFailure(modules.last, str(error.exc_type), str(error.value))
        case oslo_messaging.MessagingTimeout():
            return CallTimeout(str(error))
        case oslo_messaging.MessageUndeliverable():
            return Undeliverable(f"Nobody listens to {error.routing_key} on {error.exchange}")
    if _is_rebuilt_builtin(error):
        return RemoteFailure(
            "builtins", type(error).__name__, str(error.args[0]).partition("\n")[0]
        )
    if isinstance(error, AWAY):
        return unavailable(error)
    return error


def _is_rebuilt_builtin(error: Exception) -> bool:
    """Oslo.messaging rebuilds any server's builtin errors, with the trace after a line break."""
    is_builtin = type(error).__module__ == "builtins"
    return is_builtin and bool(error.args) and "\n" in str(error.args[0])


def _bounded(work: Callable[[], Any], timeout_s: float) -> Any:
    """Do the work in a thread of its own, for at most so long.

    The first call opens the reply queue, which oslo.messaging tries for ever while the broker is
    away. Raises BusUnavailable then.
    """
    outcomes: queue.SimpleQueue[tuple[Any, Exception | None]] = queue.SimpleQueue()

    def run() -> None:
        try:
            outcomes.put((work(), None))
        except Exception as error:  # raised below, where it is waited for
            outcomes.put((None, error))

    threading.Thread(target=run, name="bus-first-call", daemon=True).start()
    try:
        answer, error = outcomes.get(timeout=timeout_s)
    except queue.Empty:
        raise BusUnavailable(f"The message bus could not be reached in {timeout_s:g} s") from None
    if error is not None:
        raise error
    return answer


def _without_credentials(url: oslo_messaging.TransportURL) -> str:
    places = [
        f"{host.hostname}:{host.port}" if host.port else str(host.hostname) for host in url.hosts
    ]
    return f"{url.transport}://{','.join(places)}/{url.virtual_host or ''}"
