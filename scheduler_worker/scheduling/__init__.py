"""The scheduling core: chooses hosts with pure functions of values.

In here there is no clock, no I/O, no thread and no global randomness; the time and the random
source are parameters. Higher weights are better, everywhere.
"""
