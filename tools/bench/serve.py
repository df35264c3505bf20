"""The servers that ``tools/bench rpc`` calls, each in a process of its own, until SIGTERM.

serve.py [--profile] empty oslo rabbit://... topic     oslo.messaging's own, by its defaults
serve.py [--profile] empty amqp rabbit://... topic     ours, with nothing behind it
serve.py [--profile] worker worker.conf                the worker

With ``--count FILE`` the calls of functions are counted there.
"""

import argparse
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from scheduler_worker import conf
from scheduler_worker.cli import worker
from scheduler_worker.rpc.dispatcher import Endpoint
from scheduler_worker.rpc.nova import baseapi
from scheduler_worker.rpc.oslo import oslo_messaging
from scheduler_worker.rpc.transport import Bus, register_opts

sys.path[0] = str(Path(__file__).resolve().parents[1])

from bench.profiling import profiled  # noqa: E402 - the line above makes it importable
from bench.tracing import counted  # noqa: E402

STOP_S = 5.0
STOPS = {signal.SIGTERM, signal.SIGINT}


def main() -> int:
    parser = argparse.ArgumentParser(prog="tools/bench/serve.py")
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--count", type=Path)
    kinds = parser.add_subparsers(dest="kind", required=True)
    empty = kinds.add_parser("empty")
    empty.add_argument("server", choices=["oslo", "amqp"])
    empty.add_argument("url")
    empty.add_argument("topic")
    kinds.add_parser("worker").add_argument("file")
    arguments = parser.parse_args()
    with profiled(arguments.profile), counted(arguments.count):
        if arguments.kind == "worker":
            return worker.main(["--config-file", arguments.file])
        serve = _oslo if arguments.server == "oslo" else _ours
        serve(arguments.url, arguments.topic)
    return 0


def _wait_for_signal() -> None:
    signal.sigwait(STOPS)


class _Empty:
    """An endpoint of oslo.messaging that does nothing."""

    target = oslo_messaging.Target(version="4.5")

    def select_destinations(self, context: dict, **arguments: Any) -> list:
        return []


def _oslo(url: str, topic: str) -> None:
    options = conf.load()
    register_opts(options)
    options.set_override("transport_url", url)
    transport = oslo_messaging.get_rpc_transport(options)
    target = oslo_messaging.Target(topic=topic, server="bench", exchange="nova")
    access = oslo_messaging.rpc.dispatcher.DefaultRPCAccessPolicy
    server = oslo_messaging.get_rpc_server(transport, target, [_Empty()], access_policy=access)
    server.start()
    _wait_for_signal()


def _ours(url: str, topic: str) -> None:
    methods: dict[str, Callable] = {"select_destinations": lambda context, **arguments: []}
    options = conf.load()
    slots = conf.settings(options).rpc.slots
    with Bus(options, url=url) as bus:
        server = bus.server(
            topic,
            "bench",
            [Endpoint(None, "4.5", methods), baseapi()],  # it answers the server's own pings
            slots=slots,
        )
        server.start()
        _wait_for_signal()
        server.stop(STOP_S)


if __name__ == "__main__":
    signal.pthread_sigmask(signal.SIG_BLOCK, STOPS)
    sys.exit(main())
