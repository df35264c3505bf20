"""scheduler_worker decides on which host a virtual machine runs.

README.md has a reading order, from ``model/requests.py`` to ``compose/worker.py``.
"""

__version__ = "0.1.0"
