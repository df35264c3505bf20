"""PCI devices: chooses the pools of a host that serve an instance's requests."""
