"""The field's words as values: hosts, requests, claims, decisions, aggregates.

Nothing in here reads a clock, does I/O, or knows a wire form. Values are frozen
:class:`msgspec.Struct` classes; the one exception is :class:`~.hosts.HostTable`, the columns that a
replica keeps up to date. Nothing a value holds refers back to it, so the collector of garbage need
not look at them (``gc=False``): there are hundreds of thousands, and it would stop everything.
"""
