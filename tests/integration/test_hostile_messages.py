"""Hostile messages on a real RabbitMQ: none ends or stalls a server, or costs it its connection."""

import json
import struct
import uuid
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from scheduler_worker.rpc.serving.settings import DeliveryLimits
from tests.support.amqp import Account, Stage, raw_message
from tests.support.handlers import Witness, echo
from tests.support.patience import eventually

WIRE = Path(__file__).parents[1] / "samples" / "nova" / "wire"
LIVE = [json.loads(path.read_text()) for path in sorted(WIRE.glob("*.json"))]
BURSTS = 150
MAX_BYTES = 65_536


# Messages

names = st.sampled_from(["", "x", "ä" * 127, "ä" * 128, "n" * 255, "n" * 256, "q" * 5000, "\0"])
plain = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 40),
    st.sampled_from([2**31, 2**63 - 1, -(2**63)]),
    st.floats(),
    names,
    st.sampled_from(["\ud800", "x\udfff", "\udc00\ud800"]),  # lone surrogates
    st.text(max_size=20),
)


def nested(leaves: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.recursive(
        leaves,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
        max_leaves=5,
    )


unusual = nested(plain | st.integers() | st.just(10**400))
deep = st.integers(1, 2000).map(lambda depth: "[" * depth + "]" * depth)

table = nested(plain | st.binary(max_size=8) | st.decimals(-9, 9, places=2).map(Decimal))
compressions = st.sampled_from(
    ["gzip", "application/x-gzip", "bzip2", "application/x-bz2", "lzma", "zstd", "unknown", 5, ""]
)
headers = st.fixed_dictionaries(
    {},
    optional={
        "compression": compressions | table,
        "x-scheduler-worker-deliveries": st.integers(-2, 20) | table,
        "x-scheduler-worker-expires": table,
        "x-delivery-count": st.integers(-2, 20) | table,
        "x-death": table,
        "custom": table,
        "CC": st.just(["nowhere"]),
        "large": st.just("x" * 130_900),
    },
)
short = st.one_of(st.text(max_size=20), st.just("ä" * 127), st.binary(max_size=20))
properties = st.fixed_dictionaries(
    {},
    optional={
        **dict.fromkeys(["content_type", "content_encoding", "correlation_id", "reply_to"], short),
        **dict.fromkeys(["message_id", "type", "app_id", "cluster_id"], short),
        "delivery_mode": st.sampled_from([1, 2]),
        "priority": st.integers(0, 255),
        "expiration": st.sampled_from(["0", "60000", "4294967295"]),
        "timestamp": st.integers(0, 2**64 - 1),
        "user_id": st.just("guest"),
    },
)
raw_tables = st.sampled_from(
    [
        struct.pack(">B1scQ", 1, b"t", b"T", 2**62),  # a time beyond the calendar
        struct.pack(">B1sc", 1, b"\xff", b"V"),
        struct.pack(">B1scBi", 1, b"d", b"D", 255, 7),
        struct.pack(">B1scI", 1, b"s", b"S", 2) + b"\xff\xfe",
    ]
)
envelopes = st.sampled_from(
    ["_msg_id", "_reply_q", "_timeout", "_unique_id", "method", "namespace", "version", "args"]
)


@st.composite
def envelope(draw: Any) -> bytes:
    """A recorded message, as a call, with some fields changed."""
    sent = dict(draw(st.sampled_from(LIVE))["oslo.message"])
    sent |= {"_msg_id": uuid.uuid4().hex, "_reply_q": "gone", "_unique_id": uuid.uuid4().hex}
    for name in draw(st.lists(envelopes, max_size=3)):
        sent[name] = draw(unusual)
    return body(json.dumps(sent))


def body(inner: str, version: str = "2.0") -> bytes:
    return json.dumps({"oslo.version": version, "oslo.message": inner}).encode()


LIVE_BODIES = st.sampled_from(LIVE).map(lambda live: body(json.dumps(live["oslo.message"])))
no_envelope = st.one_of(
    st.binary(max_size=50),
    envelope().map(lambda whole: whole[: len(whole) // 2]),
    deep.map(body),
    st.builds(body, st.text(max_size=20), names),
)
none: st.SearchStrategy[dict[str, Any]] = st.just({})
messages = st.one_of(
    st.builds(raw_message, envelope(), headers=none, properties=none),
    st.builds(raw_message, LIVE_BODIES, headers=headers, properties=none),
    st.builds(raw_message, LIVE_BODIES, headers=none, properties=properties),
    st.builds(raw_message, LIVE_BODIES, headers=none, properties=none, table=raw_tables),
    st.builds(raw_message, no_envelope | envelope(), headers=headers, properties=properties),
)


# The server


class Worker:
    """A server with an account of its own, restarted when it broke."""

    def __init__(self, stage: Stage, account: Account) -> None:
        self._stage = stage
        self._account = account
        self._start()

    def _start(self) -> None:
        self.witness = Witness()
        self.server = self._stage.serve(
            {"echo": echo, "say": lambda _context, **_arguments: None},
            slots=2,
            url=self._account.url,
            observer=self.witness,
            limits=DeliveryLimits(max_message_bytes=MAX_BYTES),
        )
        self._client = self._stage.client()

    def restart(self) -> None:
        self.server.stop(0.1)
        for queue in (self._stage.topic, f"{self._stage.topic}.one"):
            self._stage.operator.purge(queue)
        self._start()

    def check(self) -> None:
        """It serves, has nothing in flight, and has never lost its connection."""
        assert self._client.call("echo", {}, value="served") == "served"
        eventually(lambda: not self.server.describe()["in_hand"])
        assert self.witness.seen("lost") == 0
        assert self.server.failure() is None
        assert self.server.problem() is None


@pytest.fixture(params=["dead letters", "of another kind", "not allowed"])
def worker(stage, request) -> Iterator[Worker]:
    """Dead letters can be stored, or exist with other arguments, or may not be declared."""
    with stage.account() as account:
        if request.param == "of another kind":
            stage.operator.declare(stage.dead_letters, durable=True)
        elif request.param == "not allowed":
            account.permit(without_dead_letters=True)
        yield Worker(stage, account)


@pytest.mark.deep
@settings(
    max_examples=BURSTS,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink],
)
@given(burst=st.lists(messages, min_size=1, max_size=12), queue=st.sampled_from(["", ".one"]))
def test_no_message_breaks_a_server(stage, worker, burst, queue):
    stage.operator.put_raw(stage.topic + queue, burst)
    try:
        worker.check()
    except BaseException:
        worker.restart()
        raise
