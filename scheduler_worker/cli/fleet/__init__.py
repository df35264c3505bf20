"""The commands that ask the workers over the bus, and are more than the call of an operation."""
