"""Settings that every test shares: Hypothesis profiles and the local servers."""

from __future__ import annotations

import os

import pytest
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


@pytest.fixture
def no_aws_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """No settings for AWS come from the machine."""
    for name in (
        "AWS_PROFILE",
        "AWS_ACCESS_KEY_ID",
        "AWS_SECRET_ACCESS_KEY",
        "AWS_SESSION_TOKEN",
        "AWS_REGION",
    ):
        monkeypatch.delenv(name, raising=False)
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, "/nowhere")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
