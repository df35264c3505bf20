"""NUMA: fits the cells that an instance requests to those of a host."""
