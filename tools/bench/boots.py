"""Clients that ask for destinations as conductors do: with oslo.messaging and Nova's primitives."""

import copy
import json
import logging
import threading
import time
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from scheduler_worker import conf
from scheduler_worker.rpc.oslo import oslo_messaging
from scheduler_worker.rpc.transport import register_opts

SAMPLE = (
    Path(__file__).resolve().parents[2]
    / "tests/samples/nova/wire/ok_01_select_destinations.json"
)  # fmt: skip
logging.getLogger("oslo_messaging").setLevel(logging.ERROR)  # it warns of many calls at a time
MONITOR_S, CALL_S = 60, 1800
"""Nova's ``rpc_response_timeout`` and ``long_rpc_timeout``: a call lasts while its server lives."""


class Measured(NamedTuple):
    """What became of the calls that ended while it was measured."""

    times_s: list[float]
    """Of those that were answered with destinations."""
    errors: list[str]
    seconds: float


class Conductors:
    """As many clients as threads; the servers behind the topic ``scheduler`` may change."""

    def __init__(self, url: str, clients: int) -> None:
        options = conf.load()
        register_opts(options)
        options.set_override("transport_url", url)
        self._transport = oslo_messaging.get_rpc_transport(options)
        target = oslo_messaging.Target(topic="scheduler", version="4.5", exchange="nova")
        self._client = oslo_messaging.get_rpc_client(self._transport, target).prepare(
            timeout=CALL_S, call_monitor_timeout=MONITOR_S
        )
        self._clients = clients
        message = json.loads(SAMPLE.read_text())["oslo.message"]
        self._context = _context(message)
        self._arguments = message["args"]

    def ask(self) -> str | None:
        """Ask for the destination of a new instance; returns why there is none."""
        arguments = copy.deepcopy(self._arguments)
        instance = str(uuid.uuid4())
        arguments["instance_uuids"] = [instance]
        arguments["spec_obj"]["nova_object.data"]["instance_uuid"] = instance
        context = {**self._context, "request_id": f"req-{uuid.uuid4()}"}
        try:
            [[_chosen, *_alternates]] = self._client.call(
                context, "select_destinations", **arguments
            )
        except oslo_messaging.RemoteError as error:
            return f"{error.exc_type}: {error.value}"
        except oslo_messaging.MessagingException as error:
            return repr(error)
        return None

    def measure(self, seconds: float, at_most_s: float) -> Measured:
        """Ask from all clients, one call after the other, for so long.

        Longer, but not than ``at_most_s``, while some client has no answer yet. Calls that are
        under way in the end are abandoned: end their server.
        """
        load = _Load()
        begun_s = time.perf_counter()
        for _ in range(self._clients):
            threading.Thread(target=self._keep_asking, args=(load,), daemon=True).start()
        load.ended.wait(seconds)
        load.await_each(self._clients, at_most_s - seconds)
        return load.end(time.perf_counter() - begun_s)

    def close(self) -> None:
        self._transport.cleanup()

    def _keep_asking(self, load: "_Load") -> None:
        is_first = True
        while not load.ended.is_set():
            since_s = time.perf_counter()
            try:
                error = self.ask()
            except Exception:
                if load.ended.is_set():  # and so have its server and the connection
                    return
                raise
            load.add(error, time.perf_counter() - since_s, is_first)
            is_first = False


class _Load:
    """What the clients of one measurement share."""

    def __init__(self) -> None:
        self.ended = threading.Event()
        self._changed = threading.Condition()
        self._times_s: list[float] = []
        self._errors: list[str] = []
        self._served = 0

    def add(self, error: str | None, took_s: float, is_first: bool) -> None:
        with self._changed:
            if self.ended.is_set():
                return
            self._served += is_first
            if error is None:
                self._times_s.append(took_s)
            else:
                self._errors.append(error)
            self._changed.notify_all()

    def await_each(self, clients: int, timeout_s: float) -> None:
        """Until each client had an answer."""
        with self._changed:
            self._changed.wait_for(lambda: self._served >= clients, max(0.0, timeout_s))

    def end(self, seconds: float) -> Measured:
        with self._changed:
            self.ended.set()
            return Measured(self._times_s, self._errors, seconds)


def _context(message: Mapping[str, Any]) -> dict[str, Any]:
    """The context of a message, without what the broker's client adds."""
    prefix = "_context_"
    return {
        name.removeprefix(prefix): value
        for name, value in message.items()
        if name.startswith(prefix)
    }
