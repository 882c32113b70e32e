"""Storage options: each key has an effect, or is named; none is left out in silence."""

from __future__ import annotations

import logging

import pytest

import safewrite as sw
from safewrite.stores.settings import storage_options


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ({"aws_endpoint_url": "x"}, {"AWS_ENDPOINT_URL": "x"}),
        ({"endpoint_url": "x", "access_key_id": "a"}, {"AWS_ENDPOINT_URL": "x", "AWS_ACCESS_KEY_ID": "a"}),
        ({"Region": "r"}, {"AWS_REGION": "r"}),
        ({"AWS_ALLOW_HTTP": "true", "timeout": "5s"}, {"AWS_ALLOW_HTTP": "true", "TIMEOUT": "5s"}),
        ({"s3.endpoint": "x"}, {"s3.endpoint": "x", "AWS_ENDPOINT_URL_S3": "x"}),
        ({"s3.region": "x", "AWS_REGION": "y"}, {"s3.region": "x", "AWS_REGION": "y"}),
        ({"AWS_REGION": "x", "region": "x"}, {"AWS_REGION": "x"}),
    ],
)
def test_each_key_has_one_spelling(
    given: dict[str, str], found: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    assert storage_options(given) == found
    assert not caplog.records


@pytest.mark.parametrize(
    ("key", "meant"),
    [
        ("AWS_ENDPIONT_URL", "AWS_ENDPOINT_URL"),
        ("AWS_ENDPOINT_ULR", "AWS_ENDPOINT_URL"),
        ("AWS_ACESS_KEY_ID", "AWS_ACCESS_KEY_ID"),
        ("aws_secret_acces_key", "AWS_SECRET_ACCESS_KEY"),
        ("AWS_REIGON", "AWS_REGION"),
        ("s3.end-point", "s3.endpoint"),
        ("DELTA_DYNAMO_TABLENAME", "DELTA_DYNAMO_TABLE_NAME"),
        ("key", "AWS_ACCESS_KEY_ID"),
        ("client_kwargs", "AWS_ENDPOINT_URL"),
        ("fs.s3a.endpoint", "AWS_ENDPOINT_URL"),  # T4-A12
        ("fs.s3a.secret.key", "AWS_SECRET_ACCESS_KEY"),
        ("endpoint_override", "AWS_ENDPOINT_URL"),
        ("region_name", "AWS_REGION"),
        ("fs.s3a.aws.credentials.provider", "boto3_session="),
    ],
)
@pytest.mark.parametrize("address", ["s3://lake/t", "./t"])
def test_a_slip_is_refused_with_what_was_meant_and_without_its_value(
    key: str, meant: str, address: str
) -> None:
    with pytest.raises(sw.InvalidInputError, match=meant) as caught:
        sw.open(address, storage_options={key: "hush"}, create=True)
    assert "Nothing was written" in str(caught.value)
    assert "hush" not in str(caught.value)


def test_two_values_of_one_key_are_refused() -> None:
    with pytest.raises(sw.InvalidInputError, match="AWS_REGION twice"):
        storage_options({"AWS_REGION": "a", "region": "b"})


@pytest.mark.parametrize("key", ["AWS_ROLE_ARN", "AWS_SSE_CUSTOMER_KEY_BASE64", "something_else"])
def test_a_key_without_effect_is_named(key: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "safewrite"):
        storage_options({key: "hush"})
    assert key in caplog.text
    assert "hush" not in caplog.text
