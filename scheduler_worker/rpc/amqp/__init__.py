"""Connections to RabbitMQ. From the top:

* ``connection``: one connection to a broker, with its ``queues`` and its ``publisher``;
  ``protocol`` and ``frames`` carry it
* ``properties``: what is in a copy of a message
* ``copies``: copies of a topic's messages, while others serve it
* ``settings``, ``check``
"""
