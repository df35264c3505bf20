"""Judgement: which host. Pure functions of values.

In here there is no clock, no I/O, no randomness of its own, no thread; time and dice are handed in.
Higher weights are better, everywhere.
"""
