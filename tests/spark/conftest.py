"""One Spark for the whole test session."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.spark.session import Spark


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Spark]:
    """Started once: a JVM takes 10 seconds and more. Every test that uses it is in the xdist group ``spark``."""
    with Spark(tmp_path_factory.mktemp("spark")) as session:
        yield session
