"""Replays a stream of requests against a worker, plays the fleet's agents, and checks the outcome.

* ``streams/`` read what there is to replay: our form, Alibaba's openb, Azure's packing trace;
* ``books`` keep what is on which host, as the hosts' own agents would know it;
* ``driver`` sends the requests and the reports;
* ``check`` compares the worker's promises and the books with what the hosts have;
* ``chart`` and ``summary`` show it; ``cli`` puts it together.
"""
