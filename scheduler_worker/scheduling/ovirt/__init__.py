"""oVirt's policy units, under oVirt's names and ids, and its locked policies.

They read what hosts report under ``virt`` and requests say under ``vm``; what is missing there is
taken from Nova's fields where these say the same (``host_metrics.py``, ``demand.py``).
"""
