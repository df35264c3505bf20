"""Our defaults for the bus, and for options of oslo.messaging."""

TOPIC, EXCHANGE, SLOTS = "scheduler", "nova", 64
"""The topic to which Nova's clients send requests, and how many of them a worker works on at a
time."""
EMBEDDED_URL = "local:/"
"""The bus inside this process, where no other is configured."""
DEFAULTS = {"transport_url": EMBEDDED_URL, "control_exchange": EXCHANGE}
RABBIT_DEFAULTS = {
    # A broker closes a connection after two missed heartbeats, and redelivers what was in flight.
    "heartbeat_timeout_threshold": 10,
    # A refused message closes its channel. Whoever publishes next would sleep so long, in a slot.
    "kombu_reconnect_delay": 0.0,
}


def set_for_sample() -> None:
    """Set them for ``oslo-config-generator``; the entry point ``oslo.config.opts.defaults``."""
    # The generator has imported oslo.messaging before, with its own choice of threads.
    from oslo_config import cfg
    from oslo_messaging import transport
    from oslo_messaging._drivers import impl_rabbit

    cfg.set_defaults(transport._transport_opts, **DEFAULTS)
    cfg.set_defaults(impl_rabbit.rabbit_opts, **RABBIT_DEFAULTS)
