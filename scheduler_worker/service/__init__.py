"""The use cases: connects pure scheduling to the outside through the ports.

All branching on results is here, and all retries. Nothing in here knows wire forms, engines or
configuration files.
"""
