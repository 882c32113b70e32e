"""Settings and stores that allow silent loss are refused, and nothing is left behind (A1, A13, A14)."""

from __future__ import annotations

from typing import Any

import pytest

import safewrite as sw
from bench.servers.servers import storage_options
from safewrite.delta import connect
from safewrite.stores.dynamodb import DynamoDBLocks
from tests.integration.liars import Lie, lying_store
from tests.integration.places import Place, once, rows

UNSAFE = [
    ("AWS_S3_ALLOW_UNSAFE_RENAME", "true"),
    ("aws_s3_allow_unsafe_rename", "True"),
    ("Allow_Unsafe_Rename", "1"),
    ("AWS_CONDITIONAL_PUT", "disabled"),
    ("conditional_put", "Disabled"),
    ("spark.delta.logStore.s3a.impl", "io.delta.storage.S3SingleDriverLogStore"),
]


@pytest.mark.parametrize(("name", "value"), UNSAFE)
def test_an_unsafe_option_is_refused_in_any_case(s3_place: Place, name: str, value: str) -> None:
    """A1."""
    options = dict(s3_place.storage_options) | {name: value}
    with pytest.raises(sw.UnsafeConfigError, match=f"(?i){name}.*Nothing was written") as caught:
        s3_place.open(create=True, storage_options=options)
    assert caught.value.kind == "unsafe_option"
    assert s3_place.objects() == {}


@pytest.mark.parametrize(("name", "value"), UNSAFE)
def test_an_unsafe_setting_of_the_environment_is_refused_in_any_case(
    place: Place, monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    """A1: also for a local table, whose other writers would inherit it."""
    monkeypatch.setenv(name, value)
    with pytest.raises(sw.UnsafeConfigError, match="environment"):
        place.open(create=True)


@pytest.mark.parametrize("value", ["false", "0", ""])
def test_an_unsafe_option_that_is_off_is_no_offence(s3_place: Place, value: str) -> None:
    options = dict(s3_place.storage_options) | {"AWS_S3_ALLOW_UNSAFE_RENAME": value}
    assert s3_place.open(create=True, storage_options=options).append(rows(1)).rows == 1


@pytest.mark.parametrize("lie", ["ignores the condition", "lets racers win"])
def test_a_store_that_lets_two_creates_win_is_refused_and_left_clean(lie: Lie) -> None:
    """A1, A13: If-None-Match ignored, or checked and written in two steps."""
    with lying_store(lie) as store:
        place = Place("s3://lake/t", "object-store", storage_options(store.endpoint_url))
        with pytest.raises(sw.UnsafeConfigError, match=r"If-None-Match") as caught:
            place.open(create=True).append(rows(1))
        assert caught.value.kind == "dishonest_store"
        assert store.blobs == {}
        assert store.ever
        assert all("/_safewrite/probe/" in path for path in store.ever)


def test_the_same_small_store_is_accepted_when_it_is_honest() -> None:
    """So that the refusals above are the lie's doing."""
    with lying_store("none") as store:
        place = Place("s3://lake/t", "object-store", storage_options(store.endpoint_url))
        place.open(create=True).append(rows(1), key="event")
        assert place.open().append(rows(1), key="event").outcome == "already_committed"
        assert place.ids() == once(1)


def test_a_lock_table_that_ignores_conditions_is_refused_and_left_clean(
    guarded: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A14: as floci did with legacy conditions."""
    table = guarded.open(create=True)
    client = table._format.connection.world.locks.client.here()  # type: ignore[union-attr]
    honest = client.put_item

    def unconditional(**request: Any) -> Any:
        request.pop("ConditionExpression", None)
        return honest(**request)

    monkeypatch.setattr(connect, "_honest", set())
    monkeypatch.setattr(client, "put_item", unconditional)
    with pytest.raises(sw.UnsafeConfigError, match="lock table") as caught:
        guarded.open(create=True)
    assert caught.value.kind == "dishonest_store"
    assert guarded.objects() == {}
    scratch = guarded.dynamodb().scan(TableName=guarded.lock_table)["Items"]
    assert not [item for item in scratch if item["tablePath"]["S"].startswith("safewrite:probe")]


def test_an_honest_store_is_probed_once_and_keeps_nothing_of_it(
    s3_place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connect, "_honest", set())
    s3_place.open(create=True).append(rows(1), key="event")
    assert not [path for path in s3_place.objects() if "probe" in path]
    if s3_place.arbiter == "dynamodb":
        scratch = DynamoDBLocks(s3_place.dynamodb(), str(s3_place.lock_table), "safewrite:probe")
        assert scratch.entries() == []
