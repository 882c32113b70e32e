"""Settings that every test shares: Hypothesis profiles and the local servers."""

from __future__ import annotations

import os

from hypothesis import settings

pytest_plugins = ["tests.servers"]

# No deadlines: the machine is shared, and a slow example is no finding.
settings.register_profile("default", deadline=None, print_blob=True)
# Before a change lands: the same examples for everybody, so that a failure is never a matter of luck.
settings.register_profile("ci", settings.get_profile("default"), derandomize=True, max_examples=100)
settings.register_profile(
    "nightly", settings.get_profile("default"), max_examples=5_000, stateful_step_count=200
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))
