"""Our server side, the same on every bus; wire-identical to oslo.messaging's. From the top:

* ``server``: the thread that owns the connection: start, loop, reconnect, stop; and the check that
  no other server has its name
* ``handling``: the life of a message, with ``deliveries`` (what is in flight, and when it is
  acknowledged; pure), ``execution`` and ``undelivered`` (answers that are sent again)
* ``admission``: which calls are begun, by ``queue_delay`` (pure)
* ``connection``: the interface of a connection to a bus, ``rpc/amqp`` or ``rpc/local.py``, and the
  loop that waits for it
* ``envelope``: what is in a message and in an answer
* ``settings``: names and limits
"""
