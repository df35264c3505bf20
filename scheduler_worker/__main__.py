"""``python -m scheduler_worker`` runs ``scheduler-worker``."""

import sys

from scheduler_worker.programs import worker

if __name__ == "__main__":
    sys.exit(worker())
