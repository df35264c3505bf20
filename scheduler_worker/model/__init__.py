"""The domain model: hosts, requests, claims and reservations, decisions, aggregates, policies.

Nothing in here reads a clock, does I/O, or knows a wire form. Values are frozen
:class:`msgspec.Struct` classes; the one exception is :class:`~.host_table.HostTable`, which a
replica keeps up to date. No value is part of a reference cycle, so the garbage collector need not
track them (``gc=False``): there are hundreds of thousands, and to go through them stops all
threads.
"""
