"""NUMA: fits the cells that an instance requests to a host's cells."""
