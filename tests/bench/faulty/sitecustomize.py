"""Python imports this where it begins: in each writer of a run with faults (``tests.bench.runs``) it switches them on."""

from __future__ import annotations

import os
import sys

if any("/stress/writers/" in argument for argument in sys.orig_argv):
    from tests.mutants.faults import named

    for name in os.environ["FAULTS_OF_THE_RUN"].split():
        named(name).switch_on([])
