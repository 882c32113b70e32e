"""No update leaves for Glue without the version id that Glue compares (C4)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import EndpointConnectionError

from safewrite.errors import Kind, UnsafeConfigError
from safewrite.iceberg.catalog.glue import guard


@pytest.fixture
def glue() -> Any:
    """A Glue client whose requests go nowhere: a refused connection shows that one was sent."""
    client = boto3.client(
        "glue",
        endpoint_url="http://127.0.0.1:9",
        region_name="us-east-1",
        aws_access_key_id="nobody",
        aws_secret_access_key="nothing",
        config=Config(retries={"total_max_attempts": 1}, connect_timeout=1),
    )
    guard(SimpleNamespace(glue=client))
    guard(SimpleNamespace(glue=client))  # a second decorator of the same catalog changes nothing
    return client


def test_an_update_without_a_version_id_is_not_sent(glue: Any) -> None:
    with pytest.raises(UnsafeConfigError, match="without VersionId") as refused:
        glue.update_table(DatabaseName="db", TableInput={"Name": "orders"})
    assert refused.value.kind is Kind.DISHONEST_STORE


def test_an_update_with_a_version_id_is_sent(glue: Any) -> None:
    with pytest.raises(EndpointConnectionError):
        glue.update_table(DatabaseName="db", TableInput={"Name": "orders"}, VersionId="7")


def test_other_catalogs_pass(glue: Any) -> None:
    guard(SimpleNamespace())
