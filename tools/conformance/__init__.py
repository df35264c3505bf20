"""Conformance: recorded decisions, run through the code that a request takes.

`reading` gets cases out of files, `registry` finds the kinds of cases, `cli` runs and counts. Each
module `kinds_*` is a kind: ``recognise(document)`` tells whether a document is a case of it, and
``run(case)`` yields what is different from what was recorded. A kind is added by adding such a
module. `nova` and `placement` are what Nova's kinds have in common.
"""
