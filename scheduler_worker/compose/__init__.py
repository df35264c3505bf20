"""Puts processes together: the only package that opens engines.

``engines`` names them, ``parts`` makes the parts of any process from them, and ``worker``, ``api``,
``rehearsal`` and ``checks`` are the processes and programs that are made of parts.
"""
