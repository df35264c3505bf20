"""A process that dies of a message: ``python -m tests.support.victim URL TOPIC OPTION=VALUE ...``.

The options are of ``[oslo_messaging_rabbit]``.
"""

import os
import sys
import threading

from scheduler_worker import conf
from scheduler_worker.rpc.contract import Endpoint
from scheduler_worker.rpc.serving.settings import DeliveryLimits
from scheduler_worker.rpc.transport import Bus
from scheduler_worker.rpc.wire_errors import to_wire

STATUS = 9


def main(url: str, topic: str, *options: str) -> None:
    settings = conf.load()
    bus = Bus(settings, url=url)
    for name, _, value in (each.partition("=") for each in options):
        settings.set_override(name, value, group="oslo_messaging_rabbit")
    endpoint = Endpoint(None, "1.0", {"die": lambda _context: os._exit(STATUS)})
    limits = DeliveryLimits(max_deliveries=2)
    bus.server(topic, "victim", [endpoint], translate=to_wire, slots=1, limits=limits).start()
    threading.Event().wait()


if __name__ == "__main__":
    main(*sys.argv[1:])
