"""Commands: arguments in, exit status out."""

UNUSABLE = 2
"""The exit status for invalid arguments or an invalid configuration: a retry is of no use."""
