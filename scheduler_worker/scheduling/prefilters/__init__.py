"""Nova's request filters, and the answer that Placement would have given to what they ask.

``needs`` makes of a request what it needs of a host: ``traits`` has the request filters that ask
for a trait, ``groups`` reads the granular grammar of extra specs. ``units`` answers it: where a
host may be at all in columns, and who gives resources by ``matching`` provider trees.
"""
