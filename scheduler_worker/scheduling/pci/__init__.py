"""PCI devices: which of a host's pools serve an instance's requests."""
