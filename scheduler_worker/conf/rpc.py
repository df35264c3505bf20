"""``[rpc]``: where requests come from."""

from __future__ import annotations

from oslo_config import cfg

GROUP = "rpc"

OPTS = [
    cfg.StrOpt(
        "topic",
        default="scheduler",
        help="The topic that requests are sent to. Nova's clients use 'scheduler'.",
    ),
    cfg.StrOpt(
        "exchange",
        default="nova",
        deprecated_name="control_exchange",
        deprecated_group="DEFAULT",
        help="The control exchange of the topic. Nova's clients use 'nova'.",
    ),
    cfg.IntOpt(
        "slots",
        default=6,
        min=1,
        max=256,
        help="Requests served at the same time by one worker process. A few are enough: more "
        "threads compete for one interpreter. For more throughput start more workers.",
    ),
]
