"""Publishing with confirmations, on a channel of its own. No socket, no clock.

The broker confirms each message, returns it if no queue took it, nacks it if a node of its failed,
and closes the channel over one that it refuses, without saying which. Then everything unconfirmed
is published again, one message at a time, until the channel is closed again: over the message that
was sent last.
"""

from collections import deque
from collections.abc import Callable
from itertools import takewhile

import msgspec

from scheduler_worker.rpc.amqp import frames
from scheduler_worker.rpc.amqp.frames import Signature
from scheduler_worker.rpc.serving.connection import PublishOutcome


class Publication(msgspec.Struct, eq=False):
    """A message for a queue of this name."""

    queue: str
    properties: bytes
    body: bytes
    done: "Callable[[Publication, PublishOutcome, str], None]"
    """Called with it, its outcome, and the reason."""
    is_returned: bool = False


class ConfirmingPublisher:
    """The unconfirmed messages of one channel. ``write`` sends bytes."""

    def __init__(self, channel: int, frame_max: int, write: Callable[[bytes], None]) -> None:
        self.channel = channel
        self._frame_max = frame_max
        self._write = write
        self._number = 0
        """The delivery tag of the message that was published last on this channel."""
        self._sent: dict[int, Publication] = {}
        self._suspects: deque[Publication] = deque()
        """Published again one by one; until there are none left, nothing else is published."""
        self._waiting: deque[Publication] = deque()

    @property
    def pending(self) -> list[Publication]:
        """Everything whose outcome is not known, in order."""
        return [*self._sent.values(), *self._suspects, *self._waiting]

    def publish(self, publication: Publication) -> None:
        """Send it; ``done`` is called later, or at once where AMQP cannot carry it."""
        # A message beside a suspect could be lost with the channel, and suspected in turn.
        if self._suspects:
            self._waiting.append(publication)
        else:
            self._send(publication)

    # What the broker sends

    def received(self, signature: Signature, arguments: bytes) -> bool:
        """A method arrived on the channel; whether it was about publishing."""
        if signature in {frames.BASIC_ACK, frames.BASIC_NACK}:
            number, multiple = frames.confirmation(arguments)
            self._confirm(number, multiple, is_ack=signature == frames.BASIC_ACK)
        elif signature == frames.CHANNEL_CLOSE:
            self._closed(*frames.channel_closed(arguments))
        else:
            return signature == frames.CHANNEL_OPEN_OK
        return True

    def returned(self, queue: str, body: bytes) -> None:
        """The broker returned a message, which it does before it confirms it."""
        for publication in self._sent.values():
            if (
                # Two answers may be equal; each return is about another one of them.
                not publication.is_returned
                and publication.queue == queue
                and publication.body == body
            ):
                publication.is_returned = True
                return

    def _confirm(self, number: int, multiple: bool, *, is_ack: bool) -> None:
        for tag in list(takewhile(number.__ge__, self._sent)) if multiple else [number]:
            publication = self._sent.pop(tag, None)
            if publication is None:
                continue
            # This one is innocent; the next suspect is sent alone.
            if self._suspects and self._suspects[0] is publication:
                self._suspects.popleft()
            outcome = PublishOutcome.CONFIRMED
            if not is_ack:
                outcome = PublishOutcome.NACKED
            elif publication.is_returned:
                outcome = PublishOutcome.UNROUTABLE
            publication.done(publication, outcome, "")
        self._send_next()

    def _closed(self, code: int, why: str, refused: Signature) -> None:
        """The broker closed the channel, over a publication if it was refused ``basic.publish``."""
        # Confirmations of the old channel never come: its numbers are void.
        self._write(frames.reopen_channel(self.channel))
        self._number = 0
        # Consumers are counted on this channel, too, and it may be closed over that.
        is_culprit_known = len(self._sent) == 1 and refused == frames.BASIC_PUBLISH
        if not self._suspects:
            self._suspects.extend(self._sent.values())
        self._sent.clear()
        if is_culprit_known:
            culprit = self._suspects.popleft()
            culprit.done(culprit, PublishOutcome.REFUSED, f"{code}: {why}")
        self._send_next()

    def _send_next(self) -> None:
        if self._sent:
            return
        while self._suspects and not self._sent:
            # What was returned on the old channel is routed anew.
            self._suspects[0].is_returned = False
            if not self._send(self._suspects[0]):
                self._suspects.popleft()
        while self._waiting and not self._suspects:
            self._send(self._waiting.popleft())

    def _send(self, publication: Publication) -> bool:
        try:
            encoded = frames.publish(
                self.channel,
                publication.queue,
                publication.properties,
                publication.body,
                self._frame_max,
            )
        except ValueError as error:
            publication.done(publication, PublishOutcome.REFUSED, str(error))
            return False
        self._number += 1
        self._sent[self._number] = publication
        self._write(encoded)
        return True
