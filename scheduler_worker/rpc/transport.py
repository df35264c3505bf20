"""The bus: requests in, answers and casts out; oslo.messaging behind a small face.

This module and the drivers beside it are the only ones that import oslo_messaging, and none of
its names leave: handlers get a :class:`~scheduler_worker.rpc.contract.Context` and plain values,
and raise our errors; callers get :class:`RemoteFailure`, :class:`CallTimeout` and
:class:`BusUnavailable`. On the wire everything is as any oslo.messaging peer expects it. What
requests mean is none of this room's business.

What is hidden here, each with a test in ``tests/architecture/test_oslo_traps.py`` or
``tests/contract/test_transport.py``:

* importing oslo_messaging selects eventlet unless oslo.service was told otherwise before;
* a private ``ConfigOpts`` lacks option groups that oslo.messaging registers on its global one;
* oslo's dispatcher reads the global configuration, and leaks a thread for each unknown method
  that is called with a call monitor;
* its servers cannot be stopped within a bound, and its clients cannot fail within one while the
  broker is away.
"""

from __future__ import annotations

import inspect
import logging
import math
import queue
import threading
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from types import TracebackType
from typing import Any, NamedTuple, Self

from amqp import AMQPError  # type: ignore[import-untyped]
from kombu.exceptions import OperationalError
from oslo_config import cfg
from oslo_service import backend

with warnings.catch_warnings():
    warnings.filterwarnings("ignore", message=r"\s*Eventlet is deprecated")  # we do not use it
    backend.init_backend(backend.BackendType.THREADING)  # first: oslo_messaging takes eventlet

import oslo_messaging
from oslo_messaging import dispatcher as oslo_dispatcher
from oslo_messaging import opts as oslo_opts
from oslo_messaging._metrics import client as metrics
from oslo_messaging._tracing import client as tracing
from oslo_messaging._utils import version_is_compatible
from oslo_messaging.rpc import server as oslo_server

from scheduler_worker.errors import (
    BackendError,
    ConfigError,
    RequestError,
    SchedulerWorkerError,
)
from scheduler_worker.rpc.contract import Context, Endpoint
from scheduler_worker.rpc.wire_errors import WireError

LOG = logging.getLogger(__name__)

EMBEDDED_URL = "local:/"
"""The bus inside this process, where no other is configured."""

_PUBLISH_RETRIES = 2
"""A broken connection is retried for some seconds; then the caller hears that the bus is away."""
_POLL_S = 0.5
"""How soon a server on RabbitMQ notices that it shall stop."""
_CLOSE_S = 1.0
"""A reply queue that has been idle takes up to 5 s to close; nobody has to wait for it."""
_SHORTEST_BEAT_S = 0.05

Translate = Callable[[Exception, str | None], WireError]
"""What a handler's exception looks like on the wire, given the id of the request."""


class RemoteFailure(BackendError):
    """Raised when the called method failed over there; names the error as the wire does."""

    def __init__(self, module: str, class_name: str, message: str) -> None:
        super().__init__(f"{class_name}: {message}")
        self.module = module
        self.class_name = class_name
        self.message = message


class CallTimeout(BackendError):
    """Raised when no answer came in time; whether the call had an effect is unknown."""


class BusUnavailable(BackendError):
    """Raised when a message could not be handed over: the broker is away or nobody listens."""


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
    ) -> Server:
        """A server, not yet started, for a topic, for ``topic.server``, and for its fanout.

        ``slots`` requests are worked on at a time. ``translate`` says what an exception of a
        handler looks like on the wire.
        """
        if self._transport.conf.rpc_ping_enabled:
            endpoints = [*endpoints, _PING]
        target = self._target(topic=topic, server=server)
        return Server(self._transport, target, endpoints, slots, translate)

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


class Server:
    """Serves endpoints from ``start`` until ``stop``; made by :meth:`Bus.server`.

    A request is alive from its arrival to its answer: a caller with a call monitor hears of it
    while it waits for a slot, too.
    """

    def __init__(
        self,
        transport: Any,
        target: oslo_messaging.Target,
        endpoints: Sequence[Endpoint],
        slots: int,
        translate: Translate,
    ) -> None:
        self._pulse = _Pulse()
        dispatcher = _Dispatcher(endpoints, translate, self._pulse)
        self._rpc = _RpcServer(transport, target, dispatcher, self._pulse)
        self._slots = slots
        self._guard = threading.Lock()
        self._started = False
        self._stopping: threading.Thread | None = None
        self._drained = threading.Event()

    def start(self) -> None:
        """Begin to consume; returns when the queues exist. Harmless when repeated.

        Waits for a broker that is away. Raises BusUnavailable where it refuses us.
        """
        with self._guard:
            if self._stopping:
                raise RuntimeError("a server starts once")
            if self._started:
                return
            self._started = True
        self._pulse.start()
        try:
            self._rpc.start(override_pool_size=self._slots)
        except _AWAY as error:
            raise _unavailable(error) from None

    def stop(self, timeout_s: float) -> bool:
        """Stop consuming and finish what was taken; True if all of it was finished in time.

        Otherwise what still waits for a slot is dropped, and what runs is left alone. Legal
        before ``start``, and harmless when repeated.
        """
        with self._guard:
            if self._stopping is None:
                self._stopping = threading.Thread(target=self._drain, name="rpc-drain", daemon=True)
                self._stopping.start()
        drained = self._drained.wait(timeout_s)
        if not drained:
            self._rpc.drop_waiting()
        self._pulse.stop()
        return drained

    def _drain(self) -> None:
        if self._started:
            self._rpc.stop()
            self._rpc.wait()
        self._drained.set()


class _RpcServer(oslo_server.RPCServer):  # type: ignore[misc]
    """Oslo's server, with threads that end at once, and callers told that their call is alive."""

    def __init__(
        self,
        transport: Any,
        target: oslo_messaging.Target,
        dispatcher: _Dispatcher,
        pulse: _Pulse,
    ) -> None:
        super().__init__(transport, target, dispatcher)
        # The threads of oslo's own executor wake every second, and take one to stop.
        self._executor_cls = partial(ThreadPoolExecutor, thread_name_prefix=f"rpc-{target.topic}")
        self._pulse = pulse

    def drop_waiting(self) -> None:
        if self._work_executor is not None:
            self._work_executor.shutdown(wait=False, cancel_futures=True)

    def _create_listener(self) -> Any:
        return self.transport._listen(self._target, 1, _POLL_S)

    def _on_incoming(self, incoming: list[Any]) -> None:
        self._pulse.add(incoming[0])
        super()._on_incoming(incoming)


class _Monitored(NamedTuple):
    incoming: Any
    interval_s: float
    due_s: float


class _Pulse:
    """Heart-beats for all calls in hand whose callers monitor them, from one thread."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._calls: dict[int, _Monitored] = {}
        self._wakes_s = math.inf
        self._stopped = False

    def start(self) -> None:
        threading.Thread(target=self._run, name="rpc-pulse", daemon=True).start()

    def stop(self) -> None:
        with self._changed:
            self._stopped = True
            self._changed.notify()

    def add(self, incoming: Any) -> None:
        """Beat twice in the time that the caller tolerates, as oslo.messaging does."""
        tolerated_s = incoming.client_timeout
        if not isinstance(tolerated_s, int | float) or tolerated_s <= 0:
            return
        interval_s = max(tolerated_s / 2, _SHORTEST_BEAT_S)
        call = _Monitored(incoming, interval_s, time.monotonic() + interval_s)
        with self._changed:
            self._calls[id(incoming)] = call
            if call.due_s < self._wakes_s:
                self._changed.notify()

    def remove(self, incoming: Any) -> None:
        with self._changed:
            self._calls.pop(id(incoming), None)

    def _run(self) -> None:
        while not self._stopped:
            for incoming in self._wait_for_due():
                self._beat(incoming)

    def _wait_for_due(self) -> list[Any]:
        with self._changed:
            now_s = time.monotonic()
            due = [call for call in self._calls.values() if call.due_s <= now_s]
            for call in due:
                self._calls[id(call.incoming)] = call._replace(due_s=now_s + call.interval_s)
            if not due and not self._stopped:
                self._wakes_s = min((call.due_s for call in self._calls.values()), default=math.inf)
                self._changed.wait(
                    None if self._wakes_s == math.inf else self._wakes_s - time.monotonic()
                )
            return [call.incoming for call in due]

    def _beat(self, incoming: Any) -> None:
        try:
            incoming.heartbeat()
        except Exception as error:  # its caller is gone, or the broker is
            LOG.debug("A call is no longer monitored: %s", error)
            self.remove(incoming)


class _Method:
    """A handler, and which arguments it takes."""

    def __init__(self, handler: Callable[..., Any]) -> None:
        _, *parameters = inspect.signature(handler).parameters.values()
        self.handler = handler
        self._takes_all = any(each.kind is each.VAR_KEYWORD for each in parameters)
        self._known = {each.name for each in parameters}
        self._required = [
            each.name
            for each in parameters
            if each.default is each.empty
            and each.kind in {each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY}
        ]

    def check(self, arguments: object) -> dict[str, Any]:
        """The arguments, if the handler takes them; a RequestError names the first culprit."""
        if not isinstance(arguments, dict):
            raise RequestError("args", "expected a mapping of names to values")
        for name in self._required:
            if name not in arguments:
                raise RequestError(name, "is missing")
        for name in arguments:
            if name not in self._known and not self._takes_all:
                raise RequestError(str(name)[:80], "is not an argument of this method")
        return arguments


class _Dispatcher(oslo_dispatcher.DispatcherBase):  # type: ignore[misc]
    """Finds the method, checks the arguments, and turns every error into its wire form."""

    def __init__(self, endpoints: Sequence[Endpoint], translate: Translate, pulse: _Pulse) -> None:
        self._interfaces = [
            (each, {name: _Method(handler) for name, handler in each.methods.items()})
            for each in endpoints
        ]
        self._translate = translate
        self._pulse = pulse

    def dispatch(self, incoming: Any) -> Any:
        """The handler's result. Raises oslo's ExpectedException for every failure."""
        try:
            return self._serve(incoming)
        except _NOT_SERVED as error:
            LOG.warning("Refused a message: %.200s", error)
            failure: Exception = error
        except Exception as error:  # what it means is for translate to say
            _log(error, incoming)
            request_id = incoming.ctxt.get("request_id")
            failure = _remote_error(self._translate(error, request_id))
        finally:
            self._pulse.remove(incoming)
        raise _expected(failure)

    def _serve(self, incoming: Any) -> Any:
        message = incoming.message
        method = self._find(message)
        arguments = method.check(message.get("args", {}))
        if _patience_s(incoming) <= 0:
            raise CallTimeout("The caller no longer waits")
        return method.handler(_context(incoming), **arguments)

    def _find(self, message: Mapping[str, Any]) -> _Method:
        """As oslo.messaging finds it: the first interface that fits and has the method."""
        name, version = message.get("method"), message.get("version", "1.0")
        fitting = [
            methods
            for endpoint, methods in self._interfaces
            if endpoint.namespace == message.get("namespace")
            and _supports(endpoint.version, version)
        ]
        if not fitting:
            raise oslo_messaging.UnsupportedVersion(version, method=name)
        for methods in fitting:
            if name in methods and not name.startswith("_"):
                return methods[name]
        raise oslo_messaging.NoSuchMethod(name)


_NOT_SERVED = (oslo_messaging.NoSuchMethod, oslo_messaging.UnsupportedVersion)
_PING = Endpoint(None, "1.0", {"oslo_rpc_server_ping": lambda _context, **_arguments: "pong"})


def _supports(ours: str, theirs: object) -> bool:
    try:
        return bool(version_is_compatible(ours, theirs))
    except (AttributeError, IndexError, ValueError):
        return False


def _context(incoming: Any) -> Context:
    """What may be known of the caller: the token and the catalogue stay behind."""
    sent = incoming.ctxt

    def text(name: str) -> str | None:
        value = sent.get(name)
        return value if isinstance(value, str) else None

    return Context(
        request_id=text("request_id") or "",
        global_request_id=text("global_request_id"),
        user_id=text("user_id"),
        project_id=text("project_id"),
        is_admin=sent.get("is_admin") is True,
        message_id=incoming.unique_id,
        patience_s=_patience_s(incoming),
    )


def _patience_s(incoming: Any) -> float:
    """How much longer the caller waits: a call expires on the wire when its caller gives up."""
    raw = getattr(incoming.message, "_raw_message", None)
    expiration_ms = raw.properties.get("expiration") if raw else incoming.expiration_ms
    if expiration_ms is None:
        return math.inf
    return float(expiration_ms) / 1000 - float(incoming.stopwatch.elapsed())


def _log(error: Exception, incoming: Any) -> None:
    """Of a defect everything, of a failed cast a line; whoever called hears for himself."""
    what = incoming.message.get("method"), incoming.ctxt.get("request_id")
    if not isinstance(error, SchedulerWorkerError):
        LOG.error("%s failed (request %s)", *what, exc_info=error)
    elif incoming.orig_msg_id is None:
        LOG.warning("%s was cast and failed (request %s): %s", *what, error)


def _remote_error(error: WireError) -> Exception:
    """An exception that oslo.messaging writes as this wire error: it takes name and module."""
    kind = type(
        error.class_name,
        (Exception,),
        {"__module__": error.module, "__str__": lambda _self: error.message},
    )
    failure: Exception = kind(*error.args)
    failure.kwargs = error.kwargs  # type: ignore[attr-defined]
    return failure


def _expected(failure: Exception) -> oslo_messaging.ExpectedException:
    """Answered to the caller without a trace, there and in our log."""
    expected = oslo_messaging.ExpectedException()
    expected.exc_info = (type(failure), failure, None)
    return expected


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
            return BusUnavailable(f"Nobody listens to {error.routing_key} on {error.exchange}")
    if _is_rebuilt_builtin(error):
        return RemoteFailure(
            "builtins", type(error).__name__, str(error.args[0]).partition("\n")[0]
        )
    if isinstance(error, _AWAY):
        return _unavailable(error)
    return error


def _unavailable(error: Exception) -> BusUnavailable:
    return BusUnavailable(f"The message bus cannot be reached: {error}")


_AWAY = (
    oslo_messaging.MessageDeliveryFailure,
    oslo_messaging.ClientSendError,
    OperationalError,
    AMQPError,
    OSError,
)


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
