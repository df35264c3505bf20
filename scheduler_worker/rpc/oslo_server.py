"""oslo.messaging's own RPC server: for ``local:``, and for any bus by ``[rpc] server = oslo``.

It acknowledges a message on arrival and takes any number of them; what it has in flight is lost
with its process. What this module adds: daemon threads, heartbeats for calls that wait for a slot,
a stop within a bound, and no thread leaked for each unknown method.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

from scheduler_worker import events
from scheduler_worker.errors import RequestError
from scheduler_worker.observer import Observer
from scheduler_worker.rpc.dispatcher import Dispatcher, Message
from scheduler_worker.rpc.oslo import AWAY, failed, oslo_messaging
from scheduler_worker.rpc.server import Characteristics
from scheduler_worker.rpc.slots import STUCK_S, Slots
from scheduler_worker.rpc.wire_errors import WireError

# isort: split
from oslo_messaging import dispatcher as oslo_dispatcher
from oslo_messaging.rpc import server as oslo_server

LOG = logging.getLogger(__name__)

_POLL_S = 0.5
"""How soon a server on RabbitMQ notices that it is stopped."""
_SHORTEST_HEARTBEAT_S = 0.05


class OsloServer:
    """Serves a dispatcher's methods from ``start`` until ``stop``."""

    characteristics = Characteristics(at_least_once=False, back_pressure=False)

    def __init__(
        self,
        transport: Any,
        target: oslo_messaging.Target,
        dispatcher: Dispatcher,
        *,
        slots: int,
        observer: Observer,
        stuck_after_s: float = STUCK_S,
    ) -> None:
        self._observer = observer
        self._heartbeats = _Heartbeats()
        self._slots = Slots(slots, f"rpc-{target.topic}", stuck_after_s=stuck_after_s)
        inner = _Dispatcher(dispatcher, self._heartbeats, self._slots, observer)
        self._rpc = _RpcServer(transport, target, inner, self._heartbeats, self._slots)
        self._guard = threading.Lock()
        self._started = False
        self._stopping: threading.Thread | None = None
        self._drained = threading.Event()

    def start(self) -> None:
        """Begin to consume; returns when the queues exist. Idempotent."""
        with self._guard:
            if self._stopping:
                raise RuntimeError("a server starts once")
            if self._started:
                return
            self._started = True
        self._heartbeats.start()
        try:
            self._rpc.start()
        except AWAY as error:
            raise failed(error) from None
        self._observer.bus_connected(again=False)

    def stop(self, timeout_s: float) -> bool:
        """Stop consuming and finish what was taken; True if all of it was finished in time.

        Otherwise what still waits for a slot is dropped, and what runs is left alone. Legal
        before ``start``. Idempotent.
        """
        with self._guard:
            if self._stopping is None:
                self._stopping = threading.Thread(target=self._drain, name="rpc-drain", daemon=True)
                self._stopping.start()
        drained = self._drained.wait(timeout_s)
        if not drained:
            self._slots.shutdown(wait=False, cancel_futures=True)
        self._heartbeats.stop()
        return drained

    def take_requests(self, wanted: bool) -> None:
        """Raises RequestError: oslo.messaging reads all queues of a server, or none."""
        if not wanted:
            raise RequestError(
                "worker", "only a worker with [rpc] server = amqp can be drained; stop this one"
            )

    def come_first(self) -> None:
        """Do nothing: oslo.messaging's consumers have no priority."""

    def problem(self) -> str | None:
        """Why nothing is consumed, or nothing gets done; None if all is well."""
        if not self._started or self._stopping is not None:
            return "is not consuming"
        return self._slots.stuck()

    def failure(self) -> str | None:
        """None: oslo.messaging's threads do not end by themselves."""
        return None

    def tick_age_s(self) -> float:
        """Zero: oslo.messaging's threads report nothing."""
        return 0.0

    def describe(self) -> dict[str, Any]:
        """Figures for an operator."""
        return {
            "server": "oslo",
            "consuming": self.problem() is None,
            "running": self._slots.running,
            "waiting": self._slots.waiting,
        }

    def _drain(self) -> None:
        if self._started:
            self._rpc.stop()
            self._rpc.wait()
        self._drained.set()


class _RpcServer(oslo_server.RPCServer):  # type: ignore[misc]
    """oslo.messaging's server on our slots."""

    def __init__(
        self,
        transport: Any,
        target: oslo_messaging.Target,
        dispatcher: _Dispatcher,
        heartbeats: _Heartbeats,
        slots: Slots,
    ) -> None:
        super().__init__(transport, target, dispatcher)
        self._executor_cls = lambda max_workers: slots  # noqa: ARG005 - called with this keyword
        self._heartbeats = heartbeats

    def _create_listener(self) -> Any:
        return self.transport._listen(self._target, 1, _POLL_S)

    def _on_incoming(self, incoming: list[Any]) -> None:
        self._heartbeats.add(incoming[0])
        super()._on_incoming(incoming)


class _Dispatcher(oslo_dispatcher.DispatcherBase):  # type: ignore[misc]
    """Our dispatcher behind oslo.messaging's interface."""

    def __init__(
        self, dispatcher: Dispatcher, heartbeats: _Heartbeats, slots: Slots, observer: Observer
    ) -> None:
        self._dispatcher = dispatcher
        self._heartbeats = heartbeats
        self._slots = slots
        self._observer = observer

    def dispatch(self, incoming: Any) -> Any:
        """The handler's result. Raises oslo.messaging's ExpectedException for every failure."""
        message = _message(incoming)
        self._observer.time(events.QUEUE_WAIT, float(incoming.stopwatch.elapsed()))
        try:
            result = self._dispatcher.serve(
                message, patience_s=_patience_s(incoming), yield_slot=self._yield_slot
            )
        finally:
            self._heartbeats.remove(incoming)
        if result.failure is not None:
            raise _expected(_remote_error(result.failure))
        if result.is_dropped:
            incoming.reply = _no_answer  # oslo.messaging would answer None, a value of its own
        return result.value

    def _yield_slot(self, *, blocks: bool = True) -> AbstractContextManager[None]:
        return self._slots.yield_slot()  # here every wait occupies its thread


def _no_answer(*_: object, **_named: object) -> None:
    """Stand in for the answer to a caller that no longer waits."""


def _message(incoming: Any) -> Message:
    body = incoming.message
    return Message(
        method=body.get("method"),
        namespace=body.get("namespace"),
        version=body.get("version", "1.0"),
        args=body.get("args", {}),
        context=incoming.ctxt,
        id=incoming.unique_id,
        is_call=incoming.orig_msg_id is not None,
    )


def _patience_s(incoming: Any) -> float:
    """How much longer the caller waits: a call expires on the wire when its caller gives up."""
    raw = getattr(incoming.message, "_raw_message", None)
    expiration_ms = raw.properties.get("expiration") if raw else incoming.expiration_ms
    if expiration_ms is None:
        return math.inf
    return float(expiration_ms) / 1000 - float(incoming.stopwatch.elapsed())


def _remote_error(error: WireError) -> Exception:
    """An exception that oslo.messaging encodes as this wire error, by its name and module."""
    kind = type(
        error.class_name,
        (Exception,),
        {"__module__": error.module, "__str__": lambda _self: error.message},
    )
    failure: Exception = kind(*error.args)
    failure.kwargs = error.kwargs  # type: ignore[attr-defined]
    return failure


def _expected(failure: Exception) -> oslo_messaging.ExpectedException:
    """Wrap a failure so that it is answered and logged without a traceback."""
    expected = oslo_messaging.ExpectedException()
    expected.exc_info = (type(failure), failure, None)
    return expected


class _Monitored(NamedTuple):
    incoming: Any
    interval_s: float
    due_s: float


class _Heartbeats:
    """Sends heartbeats for all monitored calls in flight, from one thread."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._calls: dict[int, _Monitored] = {}
        self._wakes_s = math.inf
        self._stopped = False

    def start(self) -> None:
        threading.Thread(target=self._run, name="rpc-heartbeats", daemon=True).start()

    def stop(self) -> None:
        with self._changed:
            self._stopped = True
            self._changed.notify()

    def add(self, incoming: Any) -> None:
        """Send two heartbeats in each interval that the caller allows, as oslo.messaging does."""
        tolerated_s = incoming.client_timeout
        if not isinstance(tolerated_s, int | float) or tolerated_s <= 0:
            return
        interval_s = max(tolerated_s / 2, _SHORTEST_HEARTBEAT_S)
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
        except Exception as error:  # the caller or the broker is gone
            LOG.debug("A call is no longer monitored: %s", error)
            self.remove(incoming)
