"""The versions of the RPC interfaces, for servers and clients."""

NOVA = "4.5"
"""Nova's interface, which has no namespace; ``rpc/nova.py`` has its history."""
BASEAPI = "1.1"
NAMESPACE, WORKER = "scheduler_worker", "1.5"
"""The worker's own interface: agents' reports and operators' operations."""
