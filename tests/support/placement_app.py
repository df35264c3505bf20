"""Serves Placement's WSGI application: ``python placement_app.py PORT THREADS``.

Run by Placement's own interpreter, with its configuration in ``OS_*`` variables. Imports nothing of
this project.
"""

import sys

from cheroot.wsgi import Server
from placement.wsgi import api


def main(port: str, threads: str) -> None:
    server = Server(("127.0.0.1", int(port)), api.application, numthreads=int(threads))
    server.timeout = 60
    try:
        server.start()
    finally:
        server.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
