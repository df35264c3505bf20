"""The commands on the book of policies and units, which both programs have.

Each is written once, against a client: ``scheduler-workerctl`` asks the workers over the bus, and
``scheduler-worker-manage`` serves itself on the shared state.
"""

from collections.abc import Mapping, Sequence

COMMANDS: Mapping[str, str] = {
    "policy attach": "policies:AttachPolicy",
    "policy diff": "policies:DiffPolicies",
    "policy edit": "edit_policy:EditPolicy",
    "policy export": "policies:ExportPolicies",
    "policy import": "policies:ImportPolicies",
    "policy remove": "policies:RemovePolicy",
    "policy show": "policies:ShowPolicy",
    "unit disable": "units:DisableUnit",
    "unit enable": "units:EnableUnit",
    "unit list": "units:ListUnits",
    "unit remove": "units:RemoveUnit",
}
"""Commands that are more than a call, as in :attr:`.CommandProgram.COMMANDS`."""
OF_OPERATIONS: Sequence[str] = (
    "audit list",
    "cluster history",
    "policy detach",
    "policy history",
    "policy list",
)
"""Commands of one operation, which ``cli/bind.py`` makes."""
