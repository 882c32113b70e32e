"""A lock table is created right, and what is wrong with one is found."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from botocore.exceptions import ClientError, ConnectionClosedError

import safewrite as sw
from safewrite.findings import Severity
from safewrite.stores import lock_table as lock_tables
from tests.sleeping import sleeps_by


@pytest.fixture
def name() -> str:
    return f"locks-{uuid.uuid4().hex[:12]}"


def make(dynamodb: Any, name: str, keys: tuple[str, str] = ("tablePath", "fileName"), **more: Any) -> None:
    types = more.pop("types", "SS")
    billing = {"BillingMode": "PAY_PER_REQUEST"} if "ProvisionedThroughput" not in more else {}
    dynamodb.create_table(
        TableName=name,
        AttributeDefinitions=[
            {"AttributeName": key, "AttributeType": kind} for key, kind in zip(keys, types, strict=True)
        ],
        KeySchema=[
            {"AttributeName": keys[0], "KeyType": "HASH"},
            {"AttributeName": keys[1], "KeyType": "RANGE"},
        ],
        **billing,
        **more,
    )


def ttl_on(dynamodb: Any, name: str, attribute: str) -> None:
    dynamodb.update_time_to_live(
        TableName=name, TimeToLiveSpecification={"Enabled": True, "AttributeName": attribute}
    )


def codes(dynamodb: Any, name: str) -> list[tuple[str, str]]:
    return [(finding.code, str(finding.severity)) for finding in lock_tables.check(dynamodb, name)]


def test_a_lock_table_that_was_created_has_nothing_wrong(dynamodb: Any, name: str) -> None:
    assert lock_tables.ensure(dynamodb, name) is True
    lock_tables.enable_recovery(dynamodb, name)
    assert codes(dynamodb, name) == []
    described = dynamodb.describe_table(TableName=name)["Table"]
    assert {part["KeyType"]: part["AttributeName"] for part in described["KeySchema"]} == {
        "HASH": "tablePath", "RANGE": "fileName",
    }  # fmt: skip
    assert described["BillingModeSummary"]["BillingMode"] == "PAY_PER_REQUEST"
    assert lock_tables.ensure(dynamodb, name) is False


def test_each_thing_that_a_lock_table_lacks_is_found_with_its_cure(dynamodb: Any, name: str) -> None:
    assert codes(dynamodb, name) == [("lock_table_missing", "danger")]
    make(dynamodb, name, ProvisionedThroughput={"ReadCapacityUnits": 100, "WriteCapacityUnits": 12})
    found = {finding.code: finding for finding in lock_tables.check(dynamodb, name)}
    assert set(found) == {"lock_table_no_ttl", "lock_table_capacity", "lock_table_no_recovery"}
    assert {finding.severity for finding in found.values()} == {Severity.WARNING}
    assert "about 2 commits a second" in found["lock_table_capacity"].message
    assert all(name in finding.mend for finding in found.values())


def test_a_table_with_other_keys_or_types_is_a_danger(dynamodb: Any, name: str) -> None:
    make(dynamodb, name, types="SN")
    found = lock_tables.check(dynamodb, name)
    assert (found[0].code, found[0].severity) == ("lock_table_schema", Severity.DANGER)
    assert "RANGE fileName (N), not HASH tablePath (S), RANGE fileName (S)" in found[0].message


def test_a_doctor_of_tables_asks_for_no_backups(dynamodb: Any, name: str) -> None:
    lock_tables.ensure(dynamodb, name)
    assert list(lock_tables.findings(dynamodb, name)) == []


@pytest.mark.parametrize("wrong", ["keys", "ttl", "missing"])
def test_a_wrong_table_is_refused_and_named_and_stays_as_it_is(dynamodb: Any, name: str, wrong: str) -> None:
    if wrong == "keys":
        make(dynamodb, name, keys=("table_path", "file_name"))
    elif wrong == "ttl":
        make(dynamodb, name)
        ttl_on(dynamodb, name, "expires")
    text = {"keys": "HASH table_path", "ttl": "it is on 'expires'", "missing": "does not exist"}[wrong]
    with pytest.raises(sw.StorageError, match=text) as raised:
        lock_tables.require_right(dynamodb, name)
    assert raised.value.kind is sw.Kind.LOCK_TABLE_UNUSABLE
    if wrong == "ttl":
        asked = dynamodb.describe_time_to_live(TableName=name)["TimeToLiveDescription"]
        assert asked["AttributeName"] == "expires"


class Refusing:
    """A DynamoDB that answers one request with an error, some times, and else as the real one."""

    def __init__(self, real: Any, request: str, code: str, times: int = 1_000) -> None:
        self.real, self.request, self.code, self.times = real, request, code, times

    def __getattr__(self, name: str) -> Any:
        if name != self.request or not self.times:
            return getattr(self.real, name)

        def refuse(**_: Any) -> Any:
            self.times -= 1
            raise ClientError({"Error": {"Code": self.code, "Message": "no"}}, "UpdateContinuousBackups")

        return refuse


def test_a_service_without_backups_is_no_finding(dynamodb: Any, name: str) -> None:
    lock_tables.ensure(dynamodb, name)
    for request in ("update_continuous_backups", "describe_continuous_backups"):
        local = Refusing(dynamodb, request, "UnknownOperationException")
        lock_tables.enable_recovery(local, name)
        assert codes(local, name) == (
            [] if request.startswith("describe") else [("lock_table_no_recovery", "warning")]
        )


def test_backups_that_may_not_be_looked_at_are_a_finding_and_not_set_an_error(
    dynamodb: Any, name: str
) -> None:
    lock_tables.ensure(dynamodb, name)
    denied = Refusing(dynamodb, "describe_continuous_backups", "AccessDeniedException")
    (found,) = lock_tables.check(denied, name)
    assert (found.code, "DescribeContinuousBackups" in found.mend) == ("lock_table_unreadable", True)
    denied = Refusing(dynamodb, "update_continuous_backups", "AccessDeniedException")
    with pytest.raises(sw.StorageError, match=r"writers can use it\..*dynamodb:UpdateContinuousBackups"):
        lock_tables.enable_recovery(denied, name)


def test_recovery_waits_until_the_backups_of_a_new_table_are_ready(
    dynamodb: Any, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock_tables.ensure(dynamodb, name)
    slept: list[float] = []
    sleeps_by(monkeypatch, slept.append)
    early = Refusing(dynamodb, "update_continuous_backups", "ContinuousBackupsUnavailableException", times=2)
    lock_tables.enable_recovery(early, name)
    assert (len(slept), codes(dynamodb, name)) == (2, [])


def test_a_lock_table_that_cannot_be_described_is_a_warning_of_doctor_and_an_error_of_check() -> None:
    class Denied:
        class exceptions:  # noqa: N801 - as boto3 names it
            class ResourceNotFoundException(Exception):  # noqa: N818
                pass

        def describe_table(self, **_: Any) -> Any:
            raise ClientError({"Error": {"Code": "AccessDeniedException", "Message": "no"}}, "DescribeTable")

    (found,) = lock_tables.findings(Denied(), "locks")
    assert (found.code, found.severity) == ("lock_table_unreadable", Severity.WARNING)
    assert "DescribeTable" in found.mend
    for call in (lock_tables.require_right, lock_tables.check):
        with pytest.raises(sw.StorageError, match="cannot be described"):
            call(Denied(), "locks")


def test_a_cut_connection_is_a_finding_and_no_bug() -> None:
    """Of such an error botocore's ``response`` is None."""

    class Cut:
        def describe_continuous_backups(self, **_: Any) -> Any:
            raise ConnectionClosedError(endpoint_url="http://127.0.0.1:1")

    (found,) = lock_tables._recovery(Cut(), "locks")
    assert (found.code, "Connection was closed" in found.message) == ("lock_table_unreadable", True)
