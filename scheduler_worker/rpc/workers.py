"""RPC methods about the workers themselves, in namespace ``scheduler_worker``; ``docs/rpc.md``.

``list_workers`` may be called on the topic: every worker knows all of them. The others are for one
worker, on ``topic.NAME``, and name it, so that no other one takes them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import msgspec

from scheduler_worker.errors import RequestError
from scheduler_worker.rpc import codec
from scheduler_worker.rpc.contract import Context, Endpoint
from scheduler_worker.rpc.worker import NAMESPACE, VERSION
from scheduler_worker.service.state.presence import WorkerFacts


class OneWorker(Protocol):
    """The worker that serves; nothing here may take a lock that requests may hold."""

    @property
    def facts(self) -> WorkerFacts: ...

    def status(self) -> Mapping[str, Any]:
        """Its uptime, problems, load, and what it holds, in plain values and without secrets."""

    def drain(self) -> None:
        """Take no more requests off the topic's queue. Raises RequestError where it cannot."""

    def resume(self) -> None:
        """Undo :meth:`drain`."""


class WorkersEndpoint:
    """Lists the workers; shows, drains and resumes this one."""

    def __init__(self, workers: Callable[[], Sequence[WorkerFacts]], worker: OneWorker) -> None:
        """``workers`` reads the shared state, and may raise StateUnavailable."""
        self._workers = workers
        self._worker = worker

    def endpoint(self) -> Endpoint:
        """The methods; those of one worker are answered however busy it is."""
        of_one = {
            "get_worker": self.get_worker,
            "drain_worker": self.drain_worker,
            "resume_worker": self.resume_worker,
        }
        methods = {"list_workers": self.list_workers, **of_one}
        return Endpoint(NAMESPACE, VERSION, methods, non_blocking=frozenset(of_one))

    def list_workers(self, context: Context) -> dict[str, Any]:
        """Return what each worker that shares the state and the topic says of itself, by name."""
        topic = self._worker.facts.topic
        found = [each for each in self._workers() if each.topic == topic]
        return {"workers": msgspec.to_builtins(found)}

    def get_worker(self, context: Context, worker: Any = None) -> dict[str, Any]:
        """Return the state of this worker."""
        self._check(worker)
        return self._found()

    def drain_worker(self, context: Context, worker: Any = None) -> dict[str, Any]:
        """Take no more requests; returns the state of this worker then."""
        self._check(worker)
        self._worker.drain()
        return self._found()

    def resume_worker(self, context: Context, worker: Any = None) -> dict[str, Any]:
        """Take requests again; returns the state of this worker then."""
        self._check(worker)
        self._worker.resume()
        return self._found()

    def _check(self, worker: Any) -> None:
        name = codec.decode_name(worker, "worker")
        if name != self._worker.facts.name:
            facts = self._worker.facts
            raise RequestError(
                "worker", f"this is {facts.name}; send it to {facts.topic}.{name} instead"
            )

    def _found(self) -> dict[str, Any]:
        return {**msgspec.to_builtins(self._worker.facts), **self._worker.status()}
