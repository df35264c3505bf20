"""Messages that are handled one after the other, in the order of their arrival."""

from collections import deque

from scheduler_worker.rpc.serving.deliveries import Work


class InOrder:
    """Queues of work by key, the first to arrive at the head; for the loop's thread alone."""

    def __init__(self) -> None:
        self._queues: dict[str, deque[Work]] = {}
        self._keys: dict[str, str] = {}
        """Id of queued work -> its key."""

    def may_begin(self, work: Work, key: str) -> bool:
        """Put the work at the end, unless it is queued; whether it is at the head."""
        queue = self._queues.setdefault(self._keys.setdefault(work.id, key), deque())
        if work not in queue:
            queue.append(work)
        return queue[0] is work

    def end(self, work: Work) -> Work | None:
        """Take the work out; returns the work that is at the head now, if it was not before."""
        key = self._keys.pop(work.id, None)
        if key is None:
            return None
        queue = self._queues[key]
        was_first = queue[0] is work
        queue.remove(work)
        if not queue:
            del self._queues[key]
        return queue[0] if queue and was_first else None
