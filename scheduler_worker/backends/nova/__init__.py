"""A real Nova's databases, as a source of hosts."""
