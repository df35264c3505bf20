"""Makes the example fleet and its stream of requests from published figures.

Everything is drawn from one seeded generator: the same seed and figures give the same files, byte
for byte. Nothing here talks to a worker; ``tools/replay`` does.
"""
