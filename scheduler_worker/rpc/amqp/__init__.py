"""Our own server side of ``rabbit://``, wire-identical to oslo.messaging's. From the top:

* ``server``: the thread that owns the connection: start, loop, reconnect, stop
* ``handling``: the life of a message, with ``deliveries`` (what is in flight, and when it is
  acknowledged; pure), ``execution``, ``extra_consumers``, ``slot_watch`` and ``undelivered``
  (answers that are sent again)
* ``admission``: which calls are begun, by ``queue_delay`` and ``throughput`` (both pure)
* ``connection``: one connection to a broker, with its ``queues``, its ``publisher`` and its
  ``ping_channel``; ``protocol``, ``stream``, ``frames`` and ``contents`` carry it
* ``envelope``, ``compression``, ``properties``: what is in a message, in an answer and in a copy
* ``settings``, ``loop``, ``name_check``, ``check``
"""
