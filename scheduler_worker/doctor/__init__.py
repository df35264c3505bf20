"""Checks of everything around a worker that it needs, from its own configuration.

``rules`` judges facts and is pure; ``examination`` collects them.
"""
