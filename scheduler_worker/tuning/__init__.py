"""The tuning language: policies that say which value a knob of a host, a VM or a disk should have.

Three phases, each with its own types, so that an unchecked policy cannot be evaluated:

1. *read* (:mod:`~.yaml_subset`, :mod:`~.expressions`, :mod:`~.reader`): text to ``TuningPolicy``;
2. *check* (:mod:`~.check`): policies to one ``Program``, in which every name is resolved;
3. *run* (:mod:`~.evaluate`): a program and statistics to changes, for all entities at once.

:func:`.loader.load` is the first two. The package is pure: no clock, no I/O, no ``eval``. Callers
pass the time. A name in a policy is a dictionary key and nothing else. The work is bounded by the
size of the policy times the number of entities.
"""
