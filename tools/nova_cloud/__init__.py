"""A Nova control plane on one machine, for tests and for trying the worker out."""
