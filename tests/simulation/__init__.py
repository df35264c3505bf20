"""Many workers, a store and a broker in one thread, under a clock that jumps: docs/testing.md."""
