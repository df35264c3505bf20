"""NUMA: whether the cells an instance asks for fit those of a host, and what they would take."""
