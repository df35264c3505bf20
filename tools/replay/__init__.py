"""Replays a stream of requests against a worker, plays the fleet's agents, and checks the outcome.

* ``streams/`` read streams: our format, Alibaba's openb, Azure's packing trace;
* ``books`` record what is on which host, as the hosts' agents would know it;
* ``driver`` sends the requests and the reports;
* ``check`` compares the worker's reservations and the books with the hosts' capacity;
* ``balance/`` compares balances in a simulated day, without a worker;
* ``chart`` and ``summary`` print it; ``cli`` is the command.
"""
