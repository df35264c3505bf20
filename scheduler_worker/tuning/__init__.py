"""Tuning: a language of policies that say which value a knob of a host or a VM should have.

Three phases, each with its own types, so that an unchecked policy cannot be evaluated:

1. *read* (:mod:`~.yaml_subset`, :mod:`~.expressions`, :mod:`~.document`): text to ``Document``;
2. *check* (:mod:`~.check`): documents to one ``Program``, in which every name is resolved;
3. *run* (:mod:`~.evaluate`): a program and statistics to changes, for all entities at once.

:func:`.policy.load` is the first two. In here there is no clock, no I/O, no ``eval``; time is
handed in, a name of the policy is a key of a plain dictionary and nothing else, and the work is
bounded by the size of the policy times the number of entities.
"""
