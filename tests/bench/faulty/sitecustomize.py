"""Python imports this where it begins in a run with faults (``tests.bench.runs``): it switches them on."""

from __future__ import annotations

import os

from tests.mutants.faults import named

for name in os.environ["FAULTS_OF_THE_RUN"].split():
    named(name).switch_on([])
