"""Makes a conductor's calls with Nova's own client, under Nova's interpreter.

    python nova_client.py CONFIG_FILE < commands

A command is ``{"do": NAME, ...}``; the answer is ``{"ok": ...}`` or ``{"raised": [module, class,
bases, text]}``. Imports nothing of this project.
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


def request_spec(uuids, **facts):
    group = facts.pop("group", None)
    spec = objects.RequestSpec.from_components(
        context.get_admin_context(),
        uuids[0],
        objects.ImageMeta(properties=objects.ImageMetaProps()),
        flavor(**facts.pop("flavor", {})),
        None,
        objects.InstancePCIRequests(requests=[]),
        {},
        objects.InstanceGroup(**group) if group else None,
        facts.pop("availability_zone", None),
    )
    spec.num_instances = len(uuids)
    spec.project_id = "proj"
    spec.user_id = "user"
    for name, value in facts.items():
        setattr(spec, name, value)
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
        request_spec(uuids, **command.get("spec", {})),
        uuids,
        return_objects=command.get("objects", True),
        return_alternates=command.get("alternates", True),
    )
    if command.get("objects", True):
        return [[selection(each) for each in some] for some in answer]
    return answer


def update_aggregate(api, command):
    found = objects.Aggregate(
        id=command["id"],
        uuid=command["uuid"],
        name=command["called"],
        hosts=command["hosts"],
        metadata=command["metadata"],
    )
    api.update_aggregates(context.get_admin_context(), [found])


def delete_aggregate(api, command):
    found = objects.Aggregate(
        id=command["id"], uuid=command["uuid"], name="x", hosts=[], metadata={}
    )
    api.delete_aggregate(context.get_admin_context(), found)


def update_instances(api, command):
    instances = [objects.Instance(uuid=uuid, host=command["host"]) for uuid in command["uuids"]]
    api.update_instance_info(
        context.get_admin_context(), command["host"], objects.InstanceList(objects=instances)
    )


def delete_instance(api, command):
    api.delete_instance_info(context.get_admin_context(), command["host"], command["uuid"])


def sync_instances(api, command):
    api.sync_instance_info(context.get_admin_context(), command["host"], command["uuids"])


COMMANDS = {
    "select": select,
    "update_aggregate": update_aggregate,
    "delete_aggregate": delete_aggregate,
    "update_instances": update_instances,
    "delete_instance": delete_instance,
    "sync_instances": sync_instances,
}


def main():
    api = start(sys.argv[1])
    for line in sys.stdin:
        command = json.loads(line)
        try:
            answer = {"ok": COMMANDS[command["do"]](api, command)}
        except Exception as error:
            kind = type(error)
            bases = [f"{each.__module__}.{each.__name__}" for each in kind.__mro__]
            answer = {"raised": [kind.__module__, kind.__name__, bases, str(error)]}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
