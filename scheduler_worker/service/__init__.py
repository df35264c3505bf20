"""The use cases: judgement joined to the world through ports.

All branching on outcomes is here, and all retries. Nothing in here knows a wire form, an engine,
or an option's origin.
"""
