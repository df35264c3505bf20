"""Conformance: runs recorded decisions through the production code and compares.

`reading` reads cases from files, `registry` finds the kinds of cases, `cli` runs and counts. Each
module `kinds_*` is a kind: ``recognise(document)`` returns whether a document is a case of it, and
``run(case)`` yields the differences from the recording. To add a kind, add such a module. `nova`
and `placement` are shared by Nova's kinds.
"""
