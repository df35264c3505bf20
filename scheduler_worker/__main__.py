"""``python -m scheduler_worker`` runs ``scheduler-worker``."""

import sys

from scheduler_worker.cli.worker import main

if __name__ == "__main__":
    sys.exit(main())
