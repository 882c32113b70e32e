"""Places for tables, one for each arbiter."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bench.servers.servers import Ministack, create_lock_table
from tests.integration.children import Nursery
from tests.integration.places import ARBITERS, Place


@pytest.fixture(scope="session")
def lake(ministack: Ministack) -> tuple[str, str]:
    """A bucket and a lock table that the tables of all tests share."""
    ministack.boto3_client("s3").create_bucket(Bucket="lake")
    return "lake", create_lock_table(ministack.boto3_client("dynamodb"), "delta_log")


@pytest.fixture
def new_place(lake: tuple[str, str], ministack: Ministack, tmp_path: Path) -> Callable[[str], Place]:
    """``new_place(arbiter)``: where no table has been yet."""
    bucket, lock_table = lake
    unique, numbers = uuid.uuid4().hex[:8], itertools.count()

    def make(arbiter: str) -> Place:
        number = next(numbers)
        if arbiter == "local":
            return Place(str(tmp_path / f"table-{number}"), arbiter)
        locks = lock_table if arbiter == "dynamodb" else None
        return Place(f"s3://{bucket}/{unique}/{number}", arbiter, ministack.storage_options(), locks)

    return make


@pytest.fixture(params=ARBITERS)
def place(request: pytest.FixtureRequest, new_place: Callable[[str], Place]) -> Place:
    """A place of each arbiter in turn."""
    return new_place(request.param)


@pytest.fixture(params=["dynamodb", "object-store"])
def s3_place(request: pytest.FixtureRequest, new_place: Callable[[str], Place]) -> Place:
    """A place on S3, of each arbiter in turn."""
    return new_place(request.param)


@pytest.fixture
def guarded(new_place: Callable[[str], Place]) -> Place:
    """A place whose arbiter is the lock table."""
    return new_place("dynamodb")


@pytest.fixture(scope="session")
def nursery() -> Iterator[Nursery]:
    """Where child processes come from."""
    nursery = Nursery()
    yield nursery
    nursery.stop()
