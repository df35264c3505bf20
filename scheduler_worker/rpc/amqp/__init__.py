"""Our own server side of ``rabbit://``, wire-identical to oslo.messaging's.

* ``envelope``: what is in a message, and in an answer
* ``ledger``: what is in hand, and when it is acknowledged; pure
* ``settings``: where the broker is, and of which kind its queues are
* ``link``: one connection to it
* ``server``: the thread that owns the connection, and the slots that work
"""
