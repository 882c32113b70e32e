"""Draws a table and all that is done with it from one seed, and compares every reader.

A *program* says which engine creates a table and which does what with it; safewrite's calls and other
engines' take turns.  An oracle in plain Python knows every value.  After each step all readers read the
table, whole and by a condition.  A write is right, or refused with a ``SafewriteError``; a disagreement of
readers is one of the known faults in :mod:`safewrite.testing.crosscheck.known`, or a fault.  A failing
program is shrunk to a small one that prints itself.

On tables of your own::

    from safewrite.testing import crosscheck
    crosscheck.check("delta", schema=my_arrow_schema, seeds=range(200))
"""

from safewrite.testing.crosscheck.oracle import DisagreementError
from safewrite.testing.crosscheck.program import Column, Program, Step, Where
from safewrite.testing.crosscheck.runs import FailedSeed, check, run

__all__ = ["Column", "DisagreementError", "FailedSeed", "Program", "Step", "Where", "check", "run"]
