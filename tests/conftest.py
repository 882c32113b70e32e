"""Settings that every test shares: Hypothesis profiles and the local servers; and what saves all of them time."""

from __future__ import annotations

import gc
import os
from functools import cache
from pathlib import Path

import boto3
import botocore.session
import pytest
from botocore.loaders import Loader, create_loader
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


class OneLoader(Loader):
    """Reads each of botocore's models once; by itself each session reads them again."""

    @property
    def search_paths(self) -> list[str]:
        """A copy, for every session of boto3 adds its folder."""
        return list(super().search_paths)


@cache
def one_loader(search_path: str | None = None) -> OneLoader:
    paths = [*create_loader(search_path).search_paths, str(Path(boto3.__file__).parent / "data")]
    return OneLoader(paths, include_default_search_paths=False)


botocore.session.create_loader = one_loader


def pytest_collection_finish() -> None:
    """What is there now is there to the end: no collection of garbage need look at it."""
    gc.collect()
    gc.freeze()


def pytest_unconfigure() -> None:
    """Else libraries find their objects leaked when the interpreter ends, and say so."""
    gc.unfreeze()


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
