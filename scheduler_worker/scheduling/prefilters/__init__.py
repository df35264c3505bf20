"""Nova's request filters, and the part of Placement that answers them.

``needs`` computes what a request needs of a host: ``traits`` has the request filters that require
traits, ``groups`` parses granular groups in extra specs. ``units`` tests hosts for it: traits,
aggregates and the like in columns, resources by ``matching`` provider trees.
"""
