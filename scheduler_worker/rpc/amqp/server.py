"""The server: one thread that owns the connection and the ledger, and slots that work.

The thread waits for the broker and for the slots at once. What a slot has done it leaves in
``_told``; nothing but the thread touches the connection, the ledger or a timer.
"""

from __future__ import annotations

import contextlib
import logging
import math
import random
import threading
import time
from collections import deque
from collections.abc import Iterator
from typing import Any

from scheduler_worker.errors import BusUnavailable, ConfigError, SchedulerWorkerError
from scheduler_worker.ports import Observer
from scheduler_worker.rpc.amqp import envelope, ledger
from scheduler_worker.rpc.amqp.callers import LostCallers
from scheduler_worker.rpc.amqp.jobs import Job
from scheduler_worker.rpc.amqp.lanes import Lanes
from scheduler_worker.rpc.amqp.ledger import Delivery, Ledger, Work
from scheduler_worker.rpc.amqp.link import Arrival, Link, LinkLostError
from scheduler_worker.rpc.amqp.loop import Loop
from scheduler_worker.rpc.amqp.settings import AmqpSettings, DeliveryLimits, Place
from scheduler_worker.rpc.dispatcher import Dispatcher, Served
from scheduler_worker.rpc.server import Characteristics
from scheduler_worker.rpc.slots import Slots

LOG = logging.getLogger(__name__)

TICK_S = 1.0
_SHORTEST_BEAT_S = 0.05
_LOOK_S, _LONGEST_LOOK_S = 0.002, 0.05
"""After how long another thread helps out if those that run did not come for what waits; they are
looked after ever less often while nothing waits."""
_AGAIN_S = 1.0
_LONGEST_AGAIN_S = 15.0
"""After how long a cast is tried again that failed for a passing reason; then ever later."""
_CLOSE_S = 5.0
"""How long a stop waits for the farewell to the broker."""


class AmqpServer:
    """Serves a dispatcher's methods on RabbitMQ from ``start`` until ``stop``."""

    characteristics = Characteristics(at_least_once=True, back_pressure=True)

    def __init__(
        self,
        settings: AmqpSettings,
        place: Place,
        dispatcher: Dispatcher,
        *,
        slots: int,
        limits: DeliveryLimits,
        observer: Observer,
    ) -> None:
        self._settings = settings
        self._place = place
        self._dispatcher = dispatcher
        self._limits = limits
        self._observer = observer
        self._count = slots
        self._slots = Slots(slots, f"rpc-{place.topic}", eager=False)
        self._looks_in_s = math.inf
        self._ledger = Ledger(max_deliveries=limits.max_deliveries)
        self._loop = Loop()
        self._link: Link | None = None
        self._jobs: dict[str, Job] = {}
        """What is done about each message in hand, by the message's id."""
        self._owed: deque[ledger.Command] = deque()
        """What the ledger said and the broker did not take yet."""
        self._lost_callers = LostCallers(
            self._loop, self._answer, patience_s=settings.find_caller_s, observer=observer
        )
        self._lanes = Lanes()
        self._last_tick_s = time.monotonic()
        self._problem: str | None = "has not started"
        self._guard = threading.Lock()
        self._thread: threading.Thread | None = None
        self._consumes = threading.Event()
        self._failure: SchedulerWorkerError | None = None
        self._stopping = threading.Event()
        self._drained = threading.Event()
        self._ended = threading.Event()

    # From other threads

    def start(self) -> None:
        """Begin to consume; returns when the queues exist. Harmless when repeated.

        Waits for a broker that is away. Raises BusUnavailable where it refuses us, ConfigError
        where its queues are of another kind than configured.
        """
        with self._guard:
            if self._stopping.is_set():
                raise RuntimeError("a server starts once")
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="rpc-amqp", daemon=True)
                self._thread.start()
        self._consumes.wait()
        if self._failure is not None:
            raise self._failure

    def stop(self, timeout_s: float) -> bool:
        """Stop consuming and finish what runs; True if all of it was finished in time.

        Whatever is not finished goes back to the broker, for other workers. Legal before
        ``start``, and harmless when repeated.
        """
        with self._guard:
            self._stopping.set()
            if self._thread is None:
                self._drained.set()
                self._ended.set()
        self._loop.tell(lambda: None)
        drained = self._drained.wait(timeout_s)
        self._loop.tell(self._give_up)
        self._ended.wait(_CLOSE_S)
        return drained

    def problem(self) -> str | None:
        """Why nothing is consumed, if nothing is."""
        return self._problem

    def tick_age_s(self) -> float:
        """Seconds since the thread last went round."""
        return time.monotonic() - self._last_tick_s

    def describe(self) -> dict[str, Any]:
        """What an operator may want to see; takes no lock."""
        return {
            "server": "amqp",
            "consuming": self._problem is None,
            "problem": self._problem,
            "slots": self._count,
            "running": self._slots.running,
            "waiting": self._slots.waiting,
            "in_hand": len(self._ledger.in_hand),
            "parked": sum(job.is_parked for job in list(self._jobs.values())),
            "lanes": len(self._lanes),
            "tick_age_s": round(self.tick_age_s(), 3),
        }

    @contextlib.contextmanager
    def _step_aside(self) -> Iterator[None]:
        """The slot serves others meanwhile, and one message more is taken for it."""
        with self._slots.step_aside():
            self._loop.tell(self._lanes.open)
            try:
                yield
            finally:
                self._loop.tell(self._lanes.close)

    # The thread

    def _run(self) -> None:
        try:
            self._serve()
        except SchedulerWorkerError as error:
            self._failure = error
            self._problem = str(error)
        except BaseException as error:
            LOG.exception("The server of topic %s broke down", self._place.topic)
            self._failure = BusUnavailable(f"The server broke down: {error!r}")
            self._problem = str(self._failure)
        finally:
            if self._link is not None:
                self._link.close()
                self._link = None
            self._slots.shutdown(wait=False, cancel_futures=True)
            self._consumes.set()
            self._drained.set()
            self._ended.set()

    def _serve(self) -> None:
        self._loop.at(0.0, self._tick)
        while not self._is_over():
            if self._link is None:
                self._connect()
                continue
            try:
                self._go_round(self._link)
            except LinkLostError as error:
                self._lose(error)
        self._problem = "has stopped"

    def _is_over(self) -> bool:
        return self._stopping.is_set() and self._drained.is_set()

    def _go_round(self, link: Link) -> None:
        """Do what is due, then wait for something to be due."""
        if self._stopping.is_set() and self._problem is None:
            self._drain(link)
        self._loop.run_due()
        self._settle(link)
        link.flush()
        if self._stopping.is_set() and not self._ledger.in_hand:
            self._drained.set()
            return
        if link.has_input or self._loop.wait(link):
            link.pump()

    def _tick(self) -> None:
        self._last_tick_s = time.monotonic()
        self._loop.at(TICK_S, self._tick)
        if self._link is not None:
            self._link.tick()

    # The connection

    def _connect(self) -> None:
        """Try all brokers, again and again, until one serves us or the server shall stop."""
        attempt = 0
        while not self._stopping.is_set():
            for broker in self._settings.brokers:
                self._loop.run_due()
                try:
                    self._link = Link(
                        self._settings,
                        broker,
                        self._place,
                        on_arrival=self._take,
                        on_returned=self._lost_callers.take,
                    )
                    self._link.consume(self._count)
                except LinkLostError as error:
                    self._problem = f"cannot reach RabbitMQ: {error}"
                    LOG.warning("RabbitMQ cannot be reached: %s", error)
                except (BusUnavailable, ConfigError) as error:
                    if not self._consumes.is_set():
                        raise
                    self._problem = str(error)
                    LOG.error("RabbitMQ does not serve us: %s", error)  # noqa: TRY400
                else:
                    self._connected(broker.address)
                    return
            self._back_off(attempt)
            attempt += 1
        self._drained.set()

    def _connected(self, address: str) -> None:
        again = self._consumes.is_set()
        LOG.info(
            "Consuming topic %s at %s%s", self._place.topic, address, " again" if again else ""
        )
        self._problem = None
        self._lanes.move(self._link)
        self._observer.bus_connected(again=again)
        self._consumes.set()

    def _back_off(self, attempt: int) -> None:
        told = self._settings
        pause_s = min(told.retry_s + attempt * told.retry_backoff_s, told.longest_retry_s)
        ends_s = time.monotonic() + pause_s * random.uniform(0.5, 1.0)
        while (left_s := ends_s - time.monotonic()) > 0 and not self._stopping.is_set():
            self._loop.wait(timeout_s=min(left_s, TICK_S))
            self._loop.run_due()

    def _lose(self, error: LinkLostError) -> None:
        """What was begun goes on; what was not goes to whom the broker gives it."""
        LOG.warning("The connection to RabbitMQ is lost: %s", error)
        if self._link is not None:
            self._link.drop()
        self._link, self._problem = None, f"lost its connection: {error}"
        self._lanes.move(None)
        self._owed.clear()
        self._observer.bus_lost()
        for work in self._ledger.lost():
            if self._is_not_begun(work):
                self._ledger.forget(work)
                self._forget(work)

    def _is_not_begun(self, work: Work) -> bool:
        job = self._jobs.get(work.request.id)
        return job is None or job.is_parked or (job.future is not None and job.future.cancel())

    def _forget(self, work: Work) -> None:
        if job := self._jobs.pop(work.request.id, None):
            job.unpark()

    def _drain(self, link: Link) -> None:
        self._problem = "is stopping"
        link.stop_consuming()
        self._lanes.move(None)
        for work in self._ledger.in_hand:
            if self._is_not_begun(work):
                self._ledger.give_back(work)
                self._forget(work)

    def _give_up(self) -> None:
        """The time to finish is over: what still runs goes back to the broker with the link."""
        self._drained.set()

    # Messages

    def _take(self, arrival: Arrival) -> None:
        if not arrival.is_counted or arrival.deliveries:
            self._observer.message_redelivered()
        try:
            request = envelope.decode(
                arrival.body, arrival.expiration, self._limits.max_message_bytes
            )
        except envelope.MalformedError as error:
            self._ledger.refuse(arrival.tag, arrival.queue, str(error))
            return
        repeated = self._ledger.repeated
        self._ledger.take(
            Delivery(
                tag=arrival.tag,
                queue=arrival.queue,
                request=request,
                deliveries=arrival.deliveries,
                is_counted=arrival.is_counted,
            )
        )
        if self._ledger.repeated > repeated:
            self._observer.message_repeated()

    def _settle(self, link: Link) -> None:
        """Do what the ledger says; while the broker takes nothing, only begin."""
        is_settled = False
        while not is_settled:
            due = self._ledger.due()
            is_settled = not due
            for command in due:
                if isinstance(command, ledger.Begin):
                    self._begin(command.work)
                else:
                    self._owed.append(command)
            while self._owed and not link.is_blocked:
                is_settled = False  # while the broker's answer was awaited, messages may have come
                self._perform(link, self._owed.popleft())

    def _perform(self, link: Link, command: ledger.Command) -> None:
        if isinstance(command, ledger.Bury):
            LOG.error("A message goes to the dead letters: %s", command.why)
            self._observer.message_dropped("dead-lettered")
        link.perform(command)

    def _begin(self, work: Work) -> None:
        if self._stopping.is_set():
            self._ledger.give_back(work)
            return
        job = self._jobs.get(work.request.id)
        if job is None:
            job = self._jobs[work.request.id] = Job(self._lanes)
            self._beat_later(work, job)
        job.unpark()
        job.future = self._slots.submit(self._work, work, job.taken_s)
        if self._looks_in_s > _LOOK_S:
            self._look_in(_LOOK_S)

    def _look_in(self, pause_s: float) -> None:
        self._looks_in_s = pause_s
        self._loop.at(pause_s, lambda: self._look_after_slots(pause_s))

    def _look_after_slots(self, pause_s: float) -> None:
        if pause_s != self._looks_in_s:
            return  # something came meanwhile, and it is looked after sooner
        is_busy = self._slots.look_after()
        self._looks_in_s = math.inf
        if self._slots.waiting:
            self._look_in(_LOOK_S)
        elif is_busy:
            self._look_in(min(2 * pause_s, _LONGEST_LOOK_S))

    def _beat_later(self, work: Work, job: Job) -> None:
        """Tell the caller now and then that its call is alive."""
        if work.request.monitor_s is None or work.request.call_id is None:
            return
        call_id = work.request.call_id
        interval_s = max(work.request.monitor_s / 2, _SHORTEST_BEAT_S)

        def beat() -> None:
            if self._jobs.get(work.request.id) is job:
                if work.tags:
                    self._answer(work.request.reply_queue, envelope.sign_of_life(call_id))
                self._loop.at(interval_s, beat)

        self._loop.at(interval_s, beat)

    # In a slot

    async def _work(self, work: Work, taken_s: float) -> None:
        try:
            served = await self._serve_one(work.request, time.monotonic() - taken_s)
            answer = envelope.written(work.request, served)
        except BaseException:
            # Whatever it is, the message must not stay in hand for ever.
            LOG.exception("A slot broke down over %s", work.request.message.method)
            told = "The request failed in the worker; its log says why"
            served = Served(failure=envelope.defect_error(told))
            answer = envelope.written(work.request, served)
        self._loop.tell(lambda: self._done(work, served, answer))

    async def _serve_one(self, request: envelope.Request, waited_s: float) -> Served:
        self._observer.request_taken(str(request.message.method), waited_s)
        if request.refusal is not None:
            LOG.warning("Refused a message: %s", request.refusal.message)
            return Served(failure=request.refusal)
        return await self._dispatcher.serving(
            request.message,
            patience_s=request.patience_s - waited_s,
            step_aside=self._step_aside,
        )

    # In the thread again

    def _done(self, work: Work, served: Served, answer: bytes | None) -> None:
        if served.again and self._stopping.is_set() and work.tags:
            self._forget(work)
            self._ledger.give_back(work)
        elif work.request.message.is_call or served.dropped or served.failure is None:
            self._forget(work)
            self._ledger.finish(work, answer)
        elif served.again:
            self._try_later(work)
        elif work.delivery.queue == self._place.fanout_queue:
            # Every worker got it, and each has logged it.
            self._forget(work)
            self._ledger.finish(work, None)
        else:
            self._forget(work)
            self._ledger.bury(work, str(served.failure.class_name))

    def _try_later(self, work: Work) -> None:
        """A cast that failed for a passing reason stays in hand, without a slot."""
        work.failures += 1
        if not work.tags:  # its message went elsewhere
            self._ledger.forget(work)
            self._forget(work)
        else:
            self._jobs[work.request.id].park(work.delivery.queue == self._place.queue)
            pause_s = min(_AGAIN_S * 2 ** (work.failures - 1), _LONGEST_AGAIN_S)
            self._loop.at(pause_s, lambda: self._retry(work))

    def _retry(self, work: Work) -> None:
        job = self._jobs.get(work.request.id)
        if job is not None and job.is_parked:
            self._ledger.retry(work)

    def _answer(self, queue: str, body: bytes) -> None:
        """Say something to a caller, unless the broker is away or takes nothing."""
        if self._link is not None and not self._link.is_blocked:
            self._link.answer(queue, body)
