"""The server: one thread owns the connection, slots handle the messages.

The thread waits for the broker and for results of slots at once. Nothing but the thread touches
the connection, the deliveries or a timer. ``handling`` has the life of a message; here are the
start, the loop, the connections one after another, and the stop.
"""

import contextlib
import logging
import random
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from scheduler_worker.errors import (
    BusUnavailable,
    ConfigError,
    SchedulerWorkerError,
    StateUnavailable,
)
from scheduler_worker.observer import Observer
from scheduler_worker.rpc.dispatcher import Dispatcher
from scheduler_worker.rpc.serving.connection import (
    BusConnection,
    ConnectionLostError,
    Listener,
    Loop,
    Open,
)
from scheduler_worker.rpc.serving.handling import MessageHandler
from scheduler_worker.rpc.serving.settings import BusSettings, DeliveryLimits, QueueNames
from scheduler_worker.rpc.slots import STUCK_S, Slots

LOG = logging.getLogger(__name__)

TICK_S = 1.0
_CLOSE_S = 5.0
"""How long a stop waits for the handshake that closes the connection."""
_REACH_S = 0.5
"""How often it is tried to reach a state that was lost."""
_LASTED_S = 10.0
"""A connection that is lost sooner is followed by a longer backoff than the one before it."""
_LATE_S = 1.0
"""A server whose tick is later by this comes last of the workers: it was paused, or starved."""
_LAST = -1
"""The priority of a server that comes last of all; other programs consume with 0."""


def junior_priority() -> int:
    """The priority of the worker that began last: above 0, and below that of those before it.

    Every request of a cluster then meets one worker, whose replica is current. The others get what
    it has no slots for, and all when it stops.
    """
    # AMQP's integers hold 24 days of milliseconds. Then the count starts over: younger workers come
    # before the older ones, until these are restarted.
    return max(1, -int(1000 * time.time()) & 0x7FFF_FFFF)


class QueueServer:
    """Serves a dispatcher's methods from ``start`` until ``stop``.

    ``openers`` open the connection, to one broker each, and are tried in turn.
    """

    def __init__(
        self,
        openers: Sequence[Open],
        settings: BusSettings,
        names: QueueNames,
        dispatcher: Dispatcher,
        *,
        slots: int,
        limits: DeliveryLimits,
        observer: Observer,
        stuck_after_s: float = STUCK_S,
        comes_first: bool = True,
        reach: Callable[[], None] = lambda: None,
    ) -> None:
        """``comes_first``: whether other programs that consume the topic get only what we have no
        slot for, or else we what they have none for, until :meth:`come_first`. ``reach`` is called
        in a slot after the state was lost, until it raises no StateUnavailable.
        """
        self._openers = openers
        self._settings = settings
        self._names = names
        self._max_bytes_in_flight = limits.max_bytes_in_flight
        self._observer = observer
        self._loop = Loop()
        self._slots = Slots(
            slots,
            f"rpc-{names.topic}",
            stuck_after_s=stuck_after_s,
            on_idle=self._loop.wake,
        )
        self._stopping = threading.Event()
        self._messages = MessageHandler(
            self._loop,
            names,
            dispatcher,
            slots=self._slots,
            limits=limits,
            find_caller_s=settings.find_caller_s,
            observer=observer,
            stopping=self._stopping,
            on_cut_off=self._leave_to_others,
        )
        self._reach = reach
        # Other threads read what follows and never change it, but for what says so. Each value is
        # replaced whole, so it may be a moment old and is never half written.
        self._is_cut_off = False
        """Whether the state is lost, without which no request can be served."""
        self._name_check = NameCheck(names)
        self._connection: BusConnection | None = None
        self._attempts = 0
        """Connections in succession that failed, or did not last."""
        self._connected_s = 0.0
        self._last_tick_s = time.monotonic()
        self._problem: str | None = "has not started"
        # Any thread sets these two; the loop's thread does what they say when it is woken.
        self._comes_first = comes_first
        self._priority = junior_priority()
        """Among workers, which share it with no other; the loop's thread changes it."""
        self._may_take_requests = True
        """Whether the topic's queue may be consumed, which all servers share."""
        self._silence: str | None = None
        self._blocked: str | None = None
        """Says for how long a broker has been silent whose connection is not lost."""
        # Of start and stop: one thread is made, and none after a stop. Nothing waits under it.
        self._guard = threading.Lock()
        self._thread: threading.Thread | None = None
        # Set by the loop's thread, where there is one; start and stop block their callers on them.
        self._consumes = threading.Event()
        self._failure: SchedulerWorkerError | None = None
        self._drained = threading.Event()
        self._ended = threading.Event()

    # From other threads

    def start(self) -> None:
        """Begin to consume, and return when the queues exist. Idempotent; nothing after a stop.

        Waits for a broker that is away. Raises BusUnavailable where it refuses us, ConfigError
        where its queues are of another kind than configured.
        """
        with self._guard:
            if self._stopping.is_set():
                return
            if self._thread is None:
                name = f"rpc-{self._settings.kind}"
                self._thread = threading.Thread(target=self._run, name=name, daemon=True)
                self._thread.start()
        # Without a bound: a broker may be away for long. A stop from another thread ends it.
        self._consumes.wait()
        if self._failure is not None:
            raise self._failure

    def stop(self, timeout_s: float) -> bool:
        """Stop consuming and finish what runs; True if all of it was finished in time.

        Whatever is not finished goes back to the broker, for other workers. Legal before
        ``start``. Idempotent.
        """
        with self._guard:
            self._stopping.set()
            if self._thread is None:
                self._drained.set()
                self._ended.set()
        self._loop.call_soon(lambda: None)  # wakes the thread
        drained = self._drained.wait(timeout_s)
        # What still runs goes back to the broker when the connection is closed.
        self._loop.call_soon(self._drained.set)
        self._ended.wait(_CLOSE_S)
        return drained

    def take_requests(self, wanted: bool) -> None:
        """Take messages from the topic's queue, which all servers share, or no more of them.

        What was taken is finished. The server's own queue and the fanout are always served.
        Returns at once. Idempotent.
        """
        # By the slot that serves `drain` or `resume`: the connection is the loop's alone.
        self._may_take_requests = wanted
        self._loop.call_soon(self._consume_as_wanted)

    def come_first(self) -> None:
        """From now on take requests before other programs that consume the topic's queue.

        For servers that were made to come last. Returns at once; does nothing where the broker
        cannot tell consumers apart. Idempotent.
        """
        if not self._comes_first:
            self._comes_first = True
            self._loop.call_soon(self._consume_by_priority)

    def problem(self) -> str | None:
        """Why nothing is consumed, or nothing gets done; None if all is well."""
        return self._problem or self._silence or self._blocked or self._slots.stuck()

    def failure(self) -> str | None:
        """Why the server ended without being stopped; None if it did not."""
        is_over = self._consumes.is_set() and self._ended.is_set()
        return str(self._failure) if is_over and self._failure is not None else None

    def tick_age_s(self) -> float:
        """Seconds since the loop last ran its tick."""
        return time.monotonic() - self._last_tick_s

    def describe(self) -> dict[str, Any]:
        """Figures for an operator; takes no lock."""
        return {
            "server": self._settings.kind,
            "consuming": self._problem is None,
            "problem": self.problem(),
            "slots": self._slots.count,
            "running": self._slots.running,
            "waiting": self._slots.waiting,
            "namesakes": self._name_check.has_found,
            "priority": self._priority if self._comes_first else _LAST,
            "tick_age_s": round(self.tick_age_s(), 3),
            "queue_delay_s": round(self._messages.admission.queue_delay_s, 3),
            **self._messages.describe(),
        }

    # The loop

    def _run(self) -> None:
        try:
            self._serve()
        except SchedulerWorkerError as error:
            self._failure = error
            self._problem = str(error)
        except BaseException as error:
            LOG.exception("The server of topic %s broke down", self._names.topic)
            self._failure = BusUnavailable(f"The server broke down: {error!r}")
            self._problem = str(self._failure)
        finally:
            with contextlib.suppress(Exception):
                if self._connection is not None:
                    self._connection.close()
            self._connection = None
            # Slots that still work hand their results to a loop that nobody runs. The broker has
            # their messages again, as nothing acknowledged them.
            self._slots.shutdown(wait=False)
            self._consumes.set()
            self._drained.set()
            self._ended.set()

    def _serve(self) -> None:
        self._last_tick_s = time.monotonic()
        self._loop.call_later(0.0, self._tick)
        self._loop.call_later(CHECK_S, self._check_name)
        while not (self._stopping.is_set() and self._drained.is_set()):
            if self._connection is None:
                self._connect()
                continue
            try:
                self._run_once(self._connection)
            # From whatever touches the connection, callbacks and timers too. Any other error of
            # these ends the server, and `failure` tells the process.
            except ConnectionLostError as error:
                LOG.warning("The connection to RabbitMQ is lost: %s", error)
                has_lasted = time.monotonic() - self._connected_s > _LASTED_S
                self._attempts = 0 if has_lasted else self._attempts + 1
                self._drop_connection()
                self._problem, self._silence = f"lost its connection: {error}", None
                self._observer.bus_lost()
        self._problem = "has stopped"

    def _run_once(self, connection: BusConnection) -> None:
        """Do what is due, then wait for something to become due."""
        if self._stopping.is_set() and self._problem is None:
            self._problem = "is stopping"
            self._messages.drain(connection)
        self._loop.run_due()
        self._messages.run_commands(connection)
        connection.flush()
        is_stopping = self._stopping.is_set()
        if is_stopping and self._messages.is_done and not connection.unconfirmed_answers():
            self._drained.set()
            return
        # Read without the lock of the slots: a wrong answer costs one doze.
        if self._slots.is_working and self._loop.doze():
            return
        if self._loop.wait(connection.descriptor if self._reads() else None):
            connection.pump()

    def _reads(self) -> bool:
        """Whether to read from the broker: not while too many bytes are in flight.

        What is not read stays in the broker, for other workers too. Without running work, nothing
        would ever make it less: then it is read all the same.
        """
        is_full = self._messages.deliveries.bytes_in_flight > self._max_bytes_in_flight
        return not (is_full and self._slots.running)

    def _tick(self) -> None:
        now_s = time.monotonic()
        late_s = now_s - self._last_tick_s - TICK_S
        self._last_tick_s = now_s
        self._loop.call_later(TICK_S, self._tick)
        if late_s > _LATE_S:
            LOG.warning("Stood still for %.1f s; requests go to other workers first", late_s)
            self._priority = junior_priority()
            self._consume_by_priority()
        if self._connection is not None:
            self._connection.tick(reads=self._reads())
            self._silence = self._connection.silence()
            is_blocked = self._connection.is_blocked
            if is_blocked and self._blocked is None:
                self._blocked = "takes no messages: RabbitMQ has an alarm of memory or disk"
                LOG.warning("The bus %s; answers wait", self._blocked)
            elif self._blocked is not None and not is_blocked:
                self._blocked = None
                LOG.warning("The bus takes messages again")

    def _check_name(self) -> None:
        self._loop.call_later(CHECK_S, self._check_name)
        if self._connection is not None and not self._connection.is_blocked:
            self._connection.count_consumers()

    # Connections, one after another

    def _connect(self) -> None:
        """Try all brokers in turn until one serves us or the server is stopped."""
        # There is no connection meanwhile, so no callback that runs here touches one.
        if self._attempts:
            self._back_off()
        while not self._stopping.is_set():
            for opener in self._openers:
                self._loop.run_due()
                try:
                    self._connect_by(opener)
                except ConnectionLostError as error:
                    self._drop_connection()
                    self._problem = f"cannot reach RabbitMQ: {error}"
                    LOG.warning("RabbitMQ cannot be reached: %s", error)
                except (BusUnavailable, ConfigError) as error:
                    self._drop_connection()
                    if not self._consumes.is_set():
                        raise
                    self._problem = str(error)
                    LOG.error("RabbitMQ does not serve us: %s", error)  # noqa: TRY400
                else:
                    return
            self._attempts += 1
            self._back_off()
        self._drained.set()

    def _connect_by(self, opener: Open) -> None:
        """Raises ConnectionLostError, BusUnavailable, ConfigError."""
        messages, admission = self._messages, self._messages.admission
        is_reconnect = self._consumes.is_set()
        listener = Listener(
            message=messages.delivered,
            answered=messages.answered,
            copied=messages.copied,
            consumers_counted=self._name_check.counted,
            ping_confirmed=admission.ping_confirmed,
            ping_answered=admission.ping_answered,
            waited_s=admission.waited_s,
        )
        connection = self._connection = opener(listener, is_reconnect)
        messages.adopt(connection)
        shared = self._takes_requests
        connection.priority = self._priority if self._comes_first else _LAST
        connection.consume(self._slots.count, shared=shared)
        again = " again" if is_reconnect else ""
        LOG.info("Consuming topic %s at %s%s", self._names.topic, connection.address, again)
        self._problem = self._silence = self._blocked = None
        self._connected_s = time.monotonic()
        messages.use(connection, shared=shared)
        self._observer.bus_connected(again=is_reconnect)
        self._consumes.set()

    def _consume_by_priority(self) -> None:
        """The priority of a consumer is fixed: another one takes its place."""
        connection = self._connection
        if connection is None or self._stopping.is_set():
            return
        connection.priority = self._priority if self._comes_first else _LAST
        if self._takes_requests:
            connection.leave_shared()
            connection.consume_shared(self._slots.count)

    def _consume_as_wanted(self) -> None:
        connection = self._connection
        if connection is None or self._stopping.is_set():
            return
        if self._takes_requests:
            connection.consume_shared(self._slots.count)
        else:
            connection.leave_shared()
        self._messages.use(connection, shared=self._takes_requests)

    @property
    def _takes_requests(self) -> bool:
        return self._may_take_requests and not self._is_cut_off

    def _leave_to_others(self) -> None:
        """Take no requests until the state is reached: other workers may have it."""
        # Called by the handler in the loop's thread, once for each request that was cut off.
        if not self._is_cut_off:
            self._is_cut_off = True
            LOG.warning("Requests are left to other workers: the shared state does not answer here")
            self._consume_as_wanted()
            self._loop.call_later(_REACH_S, self._reach_again)

    def _reach_again(self) -> None:
        if not self._stopping.is_set():
            self._messages.run_in_slot(self._try_to_reach)

    async def _try_to_reach(self) -> None:
        """In a slot: it may block."""
        is_reached = False
        try:
            with contextlib.suppress(StateUnavailable):
                self._reach()
                is_reached = True
        finally:  # whatever it raises, or this worker would never take requests again
            self._loop.call_soon(lambda: self._tried(is_reached))

    def _tried(self, is_reached: bool) -> None:
        if not is_reached:
            self._loop.call_later(_REACH_S, self._reach_again)
            return
        self._is_cut_off = False
        LOG.warning("Requests are taken again: the shared state answers")
        self._consume_as_wanted()

    def _back_off(self) -> None:
        settings = self._settings
        backoff_s = settings.retry_s + (self._attempts - 1) * settings.retry_backoff_s
        backoff_s = min(backoff_s, settings.longest_retry_s)
        ends_s = time.monotonic() + backoff_s * random.uniform(0.5, 1.0)
        while (left_s := ends_s - time.monotonic()) > 0 and not self._stopping.is_set():
            self._loop.wait(timeout_s=min(left_s, TICK_S))
            self._loop.run_due()

    def _drop_connection(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            self._messages.connection_lost(connection)
            connection.drop()


CHECK_S = 30.0
"""How often the consumers of our own queue are counted."""
_SIGHTINGS = 2
"""How many counts in succession it takes: after a reconnect the broker may still count the
connection that we lost."""


class NameCheck:
    """Counts in succession that found more than one consumer of the server's own queue.

    Two servers of one name share that queue, and each misses what the other gets.
    """

    def __init__(self, names: QueueNames) -> None:
        self._names = names
        self._sightings = 0

    @property
    def has_found(self) -> bool:
        """Whether another server runs under our name."""
        return self._sightings >= _SIGHTINGS

    def counted(self, consumers: int) -> None:
        """The broker has counted the consumers of our own queue."""
        had_found = self.has_found
        self._sightings = self._sightings + 1 if consumers > 1 else 0
        if self.has_found and not had_found:
            LOG.warning(
                "Another worker runs under the name %s: the queue %s has %d consumers, and what is "
                "sent to one or to all reaches only one of them. Give each worker its own "
                "[DEFAULT] host; RabbitMQ shows where they are as the names of their connections",
                self._names.server,
                self._names.own_queue,
                consumers,
            )
        elif had_found and not self.has_found:
            LOG.info("No other worker runs under the name %s any more", self._names.server)
