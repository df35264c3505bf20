"""Asks the workers for a host for one VM, and prints it.

    python examples/place.py UUID VCPUS MEMORY_MB

The workers are found by OS_DEFAULT__TRANSPORT_URL, or by the files that a worker reads. The answer
is a reservation: call ``release`` if the VM will not be built.
"""

import sys

from scheduler_worker.client import SchedulerClient
from scheduler_worker.errors import NoValidHost


def main() -> int:
    """Place the VM of the command line."""
    instance, vcpus, memory_mb = sys.argv[1:]
    request = {"flavor": {"vcpus": int(vcpus), "memory_mb": int(memory_mb), "root_gb": 20}}
    with SchedulerClient.connect() as scheduler:
        try:
            [[chosen, *alternates]] = scheduler.select_destinations(request, [instance])
        except NoValidHost as refused:
            sys.stdout.write(f"no host: {refused}\n")
            return 1
    others = ", ".join(each.service_host for each in alternates) or "none"
    sys.stdout.write(f"{instance} runs on {chosen.service_host}; alternates: {others}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
