"""Makes a conductor's calls with Nova's own client, under Nova's interpreter.

    python nova_client.py CONFIG_FILE < commands

A command has the arguments of ``select_destinations``; the answer is ``{"ok": ...}`` or
``{"raised": BASES}``, the names of an error's classes. Imports nothing of this project.
"""

import json
import sys

from nova import config, context, objects, rpc
from nova.conf import CONF
from nova.scheduler import rpcapi


def start(config_file):
    config.set_lib_defaults()
    CONF(["--config-file", config_file], project="nova", version="test")
    objects.register_all()
    rpc.init(CONF)
    return rpcapi.SchedulerAPI()


def flavor(**facts):
    known = {"id": 7, "name": "m1.small", "memory_mb": 1024, "vcpus": 1, "root_gb": 1}
    known |= {"ephemeral_gb": 0, "flavorid": "2", "swap": 0, "rxtx_factor": 1.0}
    known |= {"vcpu_weight": 0, "disabled": False, "is_public": True, "extra_specs": {}}
    return objects.Flavor(**(known | facts))


def request_spec(uuids, **size):
    spec = objects.RequestSpec.from_components(
        context.get_admin_context(),
        uuids[0],
        objects.ImageMeta(properties=objects.ImageMetaProps()),
        flavor(**size),
        None,
        objects.InstancePCIRequests(requests=[]),
        {},
        None,
        None,
    )
    spec.num_instances = len(uuids)
    spec.project_id = "proj"
    spec.user_id = "user"
    return spec


def selection(chosen):
    if isinstance(chosen, dict):
        return chosen
    return {
        "host": chosen.service_host,
        "node": chosen.nodename,
        "uuid": chosen.compute_node_uuid,
        "cell": chosen.cell_uuid,
        "zone": chosen.availability_zone,
        "vcpu": chosen.limits.vcpu,
        "memory_mb": chosen.limits.memory_mb,
        "allocation_request": chosen.allocation_request,
        "dict": chosen.to_dict(),
        "class": type(chosen).__name__,
    }


def select(api, command):
    uuids = command["uuids"]
    answer = api.select_destinations(
        context.get_admin_context(),
        request_spec(uuids, **command.get("flavor", {})),
        uuids,
        return_objects=command.get("objects", True),
        return_alternates=command.get("alternates", True),
    )
    if command.get("objects", True):
        return [[selection(each) for each in some] for some in answer]
    return answer


def main():
    api = start(sys.argv[1])
    for line in sys.stdin:
        try:
            answer = {"ok": select(api, json.loads(line))}
        except Exception as error:
            bases = type(error).__mro__
            answer = {"raised": [f"{each.__module__}.{each.__name__}" for each in bases]}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
