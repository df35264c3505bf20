"""The life of a message: delivered, admitted, handled, answered, acknowledged.

:class:`MessageHandler` follows it from top to bottom. Everything runs in the loop's thread, except
``_handle`` and what it calls. That runs in a slot, and hands its result back through
:meth:`Loop.call_soon`. For each message that needs no slot now, an extra consumer takes one more
from the shared queue.
"""

import contextlib
import itertools
import logging
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from scheduler_worker import events
from scheduler_worker.observer import Observer
from scheduler_worker.rpc.dispatcher import Dispatcher, Result
from scheduler_worker.rpc.serving import envelope
from scheduler_worker.rpc.serving.admission import Admission
from scheduler_worker.rpc.serving.connection import BusConnection, Loop, PublishOutcome
from scheduler_worker.rpc.serving.deliveries import (
    Begin,
    Command,
    Copy,
    DeadLetter,
    Delivery,
    DeliveryTracker,
    Publish,
    Republish,
    Work,
)
from scheduler_worker.rpc.serving.envelope import DecompressionError, decompressed
from scheduler_worker.rpc.serving.in_order import InOrder
from scheduler_worker.rpc.serving.settings import DeliveryLimits, QueueNames
from scheduler_worker.rpc.serving.undelivered import Undelivered
from scheduler_worker.rpc.slots import Slots, Task, TaskCoroutine
from scheduler_worker.waiters import complete

LOG = logging.getLogger(__name__)

_SHORTEST_HEARTBEAT_S = 0.05
_RETRY_S = 1.0
_LONGEST_RETRY_S = 15.0
"""Backoff of a cast that failed for a passing reason: doubled from the first to the second."""
_MOST_EXTRA_CONSUMERS = 100
_FIRST_CHECK_S, _LONGEST_CHECK_S = 0.002, 0.05
"""How soon slots are checked after work came; then ever less often, while nothing waits."""


class ExtraConsumers:
    """Consumers of one message each, beside the consumers of slots; for the loop's thread alone."""

    def __init__(self) -> None:
        self._numbers: list[int] = []
        self._connection: BusConnection | None = None

    def __len__(self) -> int:
        return len(self._numbers)

    def use(self, connection: BusConnection | None) -> None:
        """Consume over this connection from now on; None: not at all."""
        if connection is self._connection:
            return
        self._connection = connection
        if connection is not None:
            for number in self._numbers:
                connection.open_extra_consumer(number)

    def leave(self) -> None:
        """Consume no more, until :meth:`use`."""
        connection, self._connection = self._connection, None
        if connection is not None:
            for number in self._numbers:
                connection.close_extra_consumer(number)

    def open(self) -> None:
        """Take one message more."""
        number = next(free for free in itertools.count() if free not in self._numbers)
        self._numbers.append(number)
        if self._connection is not None:
            self._connection.open_extra_consumer(number)

    def close(self) -> None:
        """Undo one :meth:`open`, whichever."""
        number = self._numbers.pop()
        if self._connection is not None:
            self._connection.close_extra_consumer(number)


class Execution:
    """Lasts from a message's admission to its end.

    It is parked, without a slot, until those before it have ended, or until a retry.
    """

    __slots__ = ("_extra_consumers", "_has_extra_consumer", "is_parked", "taken_s", "task")

    def __init__(self, extra_consumers: ExtraConsumers) -> None:
        self._extra_consumers = extra_consumers
        self._has_extra_consumer = False
        self.taken_s = time.monotonic()
        self.task: Task | None = None
        self.is_parked = False

    def cancel(self) -> bool:
        """Whether no slot works on it, and none will."""
        return self.is_parked or (self.task is not None and self.task.cancel())

    def park(self, *, may_open: bool) -> None:
        """Wait for others, or for a retry.

        With ``may_open`` an extra consumer takes another message meanwhile. So messages that fail
        again and again do not keep others waiting.
        """
        self.is_parked = True
        self._has_extra_consumer = may_open and len(self._extra_consumers) < _MOST_EXTRA_CONSUMERS
        if self._has_extra_consumer:
            self._extra_consumers.open()

    def unpark(self) -> None:
        """Go on, or end."""
        if self._has_extra_consumer:
            self._extra_consumers.close()
        self.is_parked = self._has_extra_consumer = False


class SlotWatch:
    """Calls :meth:`Slots.ensure_progress` while there is work; used by the loop's thread alone."""

    def __init__(self, loop: Loop, slots: Slots) -> None:
        self._loop = loop
        self._slots = slots
        self._interval_s = math.inf
        """Until the next check; infinite: none is due."""

    def submitted(self) -> None:
        """Work was given to the slots."""
        if self._interval_s > _FIRST_CHECK_S:
            self._check_after(_FIRST_CHECK_S)

    def _check_after(self, interval_s: float) -> None:
        self._interval_s = interval_s
        self._loop.call_later(interval_s, lambda: self._check(interval_s))

    def _check(self, interval_s: float) -> None:
        if interval_s != self._interval_s:
            return  # work came meanwhile, and an earlier check was scheduled
        is_busy = self._slots.ensure_progress()
        self._interval_s = math.inf
        if self._slots.waiting:
            self._check_after(_FIRST_CHECK_S)
        elif is_busy:
            self._check_after(min(4 * interval_s, _LONGEST_CHECK_S))


class MessageHandler:
    """Takes the messages of one server through their lives.

    ``stopping`` is set when the server stops: from then on no work is begun that another worker
    could do.
    """

    def __init__(
        self,
        loop: Loop,
        names: QueueNames,
        dispatcher: Dispatcher,
        *,
        slots: Slots,
        limits: DeliveryLimits,
        find_caller_s: float,
        observer: Observer,
        stopping: threading.Event,
        on_cut_off: Callable[[], None],
    ) -> None:
        """``on_cut_off`` is called when the state is lost, to take no more that others can do."""
        self._loop = loop
        self._names = names
        self._dispatcher = dispatcher
        self._slots = slots
        self._slot_watch = SlotWatch(loop, slots)
        self._limits = limits
        self._find_caller_s = find_caller_s
        self._observer = observer
        self._stopping = stopping
        self._on_cut_off = on_cut_off
        self._connection: BusConnection | None = None
        self.deliveries = DeliveryTracker(max_deliveries=limits.max_deliveries)
        # No lock: all below is the loop's, and `describe` copies what it counts.
        self._executions: dict[str, Execution] = {}
        """By the id of the message."""
        self._in_order = InOrder()
        self._unsent: deque[Command] = deque()
        """Commands that wait for a broker that is blocked."""
        self._orphans: list[Work] = []
        """Work that was not begun when the connection was lost. Other workers get it, unless its
        queue is gone."""
        self._undelivered = Undelivered(
            loop,
            self._send_again,
            self._not_copied,
            self._take_more,
            remaining_s=find_caller_s,
            observer=observer,
        )
        self._extra_consumers = ExtraConsumers()
        self.admission = Admission(
            loop,
            names.queue,
            in_flight=lambda: (
                len(self._executions) + self._undelivered.copies - len(self._extra_consumers)
            ),
            limit=slots.count,
        )

    # The connection

    def adopt(self, connection: BusConnection) -> None:
        """Find out which messages were lost with their queues: no other worker gets those."""
        for work in self.deliveries.in_flight:
            work.is_ours_alone |= work.delivery.queue in connection.vanished
        orphans, self._orphans = self._orphans, []
        for work in orphans:
            if work.is_ours_alone:
                self.deliveries.retry(work)
            else:
                self.deliveries.forget(work)

    def use(self, connection: BusConnection, *, shared: bool = True) -> None:
        """Send and receive over this connection, which consumes by now.

        ``shared``: the topic's queue too, so that more of it is taken for work that only waits.
        """
        self._connection = connection
        if shared:
            self._extra_consumers.use(connection)
        else:
            self._extra_consumers.leave()
        self.admission.use(connection)

    def drain(self, connection: BusConnection) -> None:
        """Consume no more, and give back everything that was not begun."""
        connection.stop_consuming()
        self._extra_consumers.use(None)
        for work in self.deliveries.in_flight:
            if not work.is_ours_alone and self._cancel(work):
                self.deliveries.give_back(work)
                self._forget(work)

    def connection_lost(self, connection: BusConnection) -> None:
        """Keep the answers for the next connection; work that was begun goes on."""
        self._connection = None
        self._extra_consumers.use(None)
        self.admission.use(None)
        unsent = [command for command in self._unsent if isinstance(command, Publish)]
        self._undelivered.connection_lost([*connection.unconfirmed_answers(), *unsent])
        self._unsent.clear()
        # Work in slots goes on: its answer goes out over the next connection.
        for work in self.deliveries.connection_lost():
            if self._cancel(work) and work not in self._orphans:
                self._orphans.append(work)
                self._forget(work)

    def _cancel(self, work: Work) -> bool:
        """Whether it was not begun, and will not be."""
        execution = self._executions.get(work.id)
        return execution is None or execution.cancel()

    def _forget(self, work: Work) -> None:
        if execution := self._executions.pop(work.id, None):
            execution.unpark()
        if (following := self._in_order.end(work)) is not None:
            # Not at once: what is forgotten with this one, as with its connection, must not begin.
            self._loop.call_soon(lambda: self._retry(following))

    # 1. Delivered

    def delivered(self, message: Delivery) -> None:
        """Read a message, or dead-letter one that cannot be read."""
        if not message.is_counted or message.deliveries:
            self._observer.count(events.REDELIVERED)
        max_bytes = self._limits.max_message_bytes
        try:
            body = decompressed(message.body, message.compression, max_bytes)
        except DecompressionError as error:
            self.deliveries.refuse(message.tag, str(error))
            return
        # Reading it may be what kills workers: only its id is read before it is known to be safe.
        is_first = message.is_counted and not message.deliveries
        if not self.deliveries.accept("" if is_first else envelope.peek_id(body), message):
            return
        request = envelope.read(body, message.expiration, max_bytes)
        if isinstance(request, envelope.MalformedError):
            self.deliveries.refuse(message.tag, str(request))
            return
        if message.traceparent is not None:
            request = envelope.traced(request, message.traceparent)
        message.request = self.admission.received(request, message.queue)
        message.size, message.body = len(body), b""
        if self.deliveries.take(message):
            self._observer.count(events.DUPLICATES)

    def run_commands(self, connection: BusConnection) -> None:
        """Do what the tracker decided; while the broker is blocked, only begin work."""
        has_more = True
        while has_more:
            commands = self.deliveries.due()
            has_more = bool(commands)
            for command in commands:
                if isinstance(command, Begin):
                    self._begin(command.work)
                else:
                    self._unsent.append(command)
            while self._unsent and not connection.is_blocked:
                has_more = True  # AMQP cannot carry some answers, which is known at once
                command = self._unsent.popleft()
                if isinstance(command, DeadLetter):
                    LOG.error("A message goes to the dead letters: %s", command.why)
                connection.perform(command)

    # 2. Admitted

    def _begin(self, work: Work) -> None:
        if self._stopping.is_set() and not work.is_ours_alone:
            self.deliveries.give_back(work)
            return
        execution = self._executions.get(work.id)
        if execution is None:
            if not self._is_admitted(work):
                return
            execution = self._executions[work.id] = Execution(self._extra_consumers)
            self._start_heartbeats(work, execution)
        execution.unpark()
        key = self._dispatcher.order_of(work.request.message)
        if key is not None and not self._in_order.may_begin(work, key):
            execution.park(may_open=False)
            return
        execution.task = self.run_in_slot(self._handle, work, execution.taken_s)

    def run_in_slot(self, function: Callable[..., TaskCoroutine], /, *args: Any) -> Task:
        """Run it as soon as a slot is free."""
        task = self._slots.submit(function, *args)
        self._slot_watch.submitted()
        return task

    def _is_admitted(self, work: Work) -> bool:
        """Whether it needs a slot; else it was answered at once, or dropped."""
        if self._dispatcher.is_non_blocking(work.request.message):
            # Here in the loop's thread: while such a method waits, nothing else is served.
            complete(self._handle(work, time.monotonic()))
            return False
        if self.admission.admits(work.request):
            return True
        self._observer.count(events.DROPPED, "expired")
        self.deliveries.finish(work, None)
        return False

    def _start_heartbeats(self, work: Work, execution: Execution) -> None:
        """Tell a caller that monitors its call twice in each interval that it is worked on.

        One whose call was redelivered hears it at once: it may not have heard of it for long.
        """
        if work.request.call_monitor_s is None or work.request.call_id is None:
            return
        call_id = work.request.call_id
        interval_s = max(work.request.call_monitor_s / 2, _SHORTEST_HEARTBEAT_S)

        def beat() -> None:
            if self._executions.get(work.id) is not execution:
                return
            is_ours = bool(work.tags) or work.is_ours_alone
            if is_ours and self._connection is not None and not self._connection.is_blocked:
                body = envelope.encode_heartbeat(call_id)
                self._connection.answer(work.request.reply_queue, body, matters=False)
            self._loop.call_later(interval_s, beat)

        if work.delivery.deliveries:
            beat()
        else:
            self._loop.call_later(interval_s, beat)

    # 3. Handled, in a slot

    async def _handle(self, work: Work, taken_s: float) -> None:
        # Of the work it reads what the loop's thread leaves alone while a slot has it.
        now_s, since_s = time.monotonic(), work.failing_since_s
        # A cast is retried as long as the answer to a call is sent again.
        may_retry = since_s is None or now_s - since_s < self._find_caller_s
        try:
            result = await self._dispatch(work.request, now_s - taken_s, may_retry)
        except BaseException:
            # Whatever it is, the message must not stay in flight for ever.
            LOG.exception("A slot broke down over a message")
            text = "The request failed in the worker; its log says why"
            result = Result(failure=envelope.internal_error(text))
        answer = envelope.encode_result(work.request, result)
        # The results of all that is ready go out together.
        self._loop.call_soon(lambda: self._handled(work, result, answer, may_retry), has_time=True)

    async def _dispatch(
        self, request: envelope.WireRequest, waited_s: float, may_retry: bool
    ) -> Result:
        self._observer.time(events.QUEUE_WAIT, waited_s)
        if request.refusal is not None:
            LOG.warning("Refused a message: %s", request.refusal.message)
            return Result(failure=request.refusal)
        return await self._dispatcher.serve(
            request.message,
            waited_s=waited_s,
            remaining_s=request.remaining_s - waited_s,
            yield_slot=self._yield_slot,
            may_retry=may_retry,
        )

    @contextlib.contextmanager
    def _yield_slot(self) -> Iterator[None]:
        """Inside, one message more is taken; a handler that waits needs no thread."""
        # Both by the loop, in this order, whichever thread the handler ends in.
        self._loop.call_soon(self._extra_consumers.open)
        try:
            yield
        finally:
            self._loop.call_soon(self._extra_consumers.close)

    # 4. Answered

    def _handled(self, work: Work, result: Result, answer: bytes | None, may_retry: bool) -> None:
        if work.id in self._executions:  # else it took no slot
            self.admission.finished(dropped=result.is_dropped)
        is_left = result.is_retryable and self._stopping.is_set() and bool(work.tags)
        # Other workers may reach the state that this one has lost.
        if result.is_cut_off and work.delivery.queue == self._names.queue:
            self._on_cut_off()
            is_left |= not work.is_ours_alone
        if is_left:
            self._forget(work)
            self.deliveries.give_back(work)
        elif work.request.message.is_call or result.is_dropped or result.failure is None:
            self._forget(work)
            self.deliveries.finish(work, answer)
            self._observer.call_answered(str(work.request.message.context.get("request_id", "")))
        elif result.is_retryable and (may_retry or not result.is_bounded):
            self._retry_later(work)
        elif work.delivery.queue == self._names.fanout_queue:
            # Every worker got it, and each has logged it.
            self._forget(work)
            self.deliveries.finish(work, None)
        else:
            self._forget(work)
            self.deliveries.dead_letter(work, result.why or result.failure.message)

    def _retry_later(self, work: Work) -> None:
        """A cast that failed for a passing reason stays in flight, without a slot."""
        work.failures += 1
        work.failing_since_s = work.failing_since_s or time.monotonic()
        if work.tags or work.is_ours_alone:
            self._executions[work.id].park(may_open=work.delivery.queue == self._names.queue)
            backoff_s = min(_RETRY_S * 2 ** (work.failures - 1), _LONGEST_RETRY_S)
            self._loop.call_later(backoff_s, lambda: self._retry(work))
            return
        self._forget(work)
        if self._connection is None:
            self._orphans.append(work)
        else:
            self.deliveries.forget(work)

    def _retry(self, work: Work) -> None:
        execution = self._executions.get(work.id)
        if execution is not None and execution.is_parked:
            self.deliveries.retry(work)

    def _send_again(self, message: Publish | Copy) -> bool:
        """False while the broker is away or blocked."""
        if self._connection is None or self._connection.is_blocked:
            return False
        self._connection.perform(message)
        return True

    def answered(self, answer: Publish, outcome: PublishOutcome, why: str) -> None:
        """The broker told what it did with an answer."""
        if outcome.may_pass:
            self._undelivered.not_taken(answer, outcome)
            return
        if self._undelivered.size:
            self._undelivered.settled(answer)
        if outcome is PublishOutcome.REFUSED:
            LOG.error("RabbitMQ refused an answer: %s", why)
            self._observer.count(events.DROPPED, "refused")
            if (failure := envelope.failure_instead_of(answer.body, why)) is not None:
                self._unsent.append(Publish(answer.queue, failure))

    # 5. Acknowledged, given back, or dead-lettered

    def copied(self, copy: Copy, outcome: PublishOutcome, why: str) -> None:
        """The broker told what it did with a copy that the tracker ordered."""
        # What is given back needs no copy: to requeue it loses its count alone.
        needs_copy = not (isinstance(copy, Republish) and copy.is_given_back)
        if outcome.may_pass and needs_copy and len(self._extra_consumers) < _MOST_EXTRA_CONSUMERS:
            self._undelivered.not_taken(copy, outcome)
            return
        self._undelivered.settled(copy)
        if outcome is PublishOutcome.CONFIRMED:
            if isinstance(copy, DeadLetter):
                self._observer.count(events.DROPPED, "dead-lettered")
            self.deliveries.copied(copy)
        else:
            self._not_copied(copy, outcome, why)

    def _take_more(self, number: int) -> None:
        (self._extra_consumers.open if number > 0 else self._extra_consumers.close)()

    def _not_copied(self, copy: Copy, outcome: PublishOutcome, why: str = "") -> None:
        problem = why or outcome.value
        if isinstance(copy, DeadLetter):
            self._observer.count(events.DROPPED, "discarded")
            LOG.error(
                "A message is dropped: it could not be served (%s), and the dead letters do not "
                "take it (%s)",
                copy.why,
                problem,
            )
        self.deliveries.not_copied(copy, problem, may_pass=outcome.may_pass)

    # What the server wants to know

    @property
    def is_done(self) -> bool:
        """Whether nothing is in flight, and nothing is left to send."""
        has_sent = not self._unsent and not self._undelivered.has_nacked
        return self.deliveries.is_settled and has_sent

    def describe(self) -> dict[str, Any]:
        """Figures for an operator; takes no lock."""
        return {
            "in_hand": len(self.deliveries.in_flight),
            "bytes_in_hand": self.deliveries.bytes_in_flight,
            "unanswered_bytes": self._undelivered.size,
            "parked": sum(execution.is_parked for execution in list(self._executions.values())),
            "extra_consumers": len(self._extra_consumers),
        }
