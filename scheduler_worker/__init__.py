"""scheduler_worker decides on which host a virtual machine runs.

Start reading at ``model/host_table.py``; ``ARCHITECTURE.md`` draws the whole house.
"""

__version__ = "0.1.0"
