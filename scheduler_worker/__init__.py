"""scheduler_worker decides on which host a virtual machine runs.

ARCHITECTURE.md names the packages, and follows a request through them.
"""

__version__ = "0.1.0"
