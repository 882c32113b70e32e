"""to_deltalake on S3 and DynamoDB; deltalake reads what it wrote."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import deltalake
import pandas as pd
import pytest
from pandas.testing import assert_frame_equal

import safewrite as sw
from safewrite.wrangler import delta, to_deltalake
from tests.wrangler.conftest import Lake

FRAME = pd.DataFrame({"id": [1, 2, 3], "name": ["foo", None, "bar"], "rate": [3.0, 4.0, 5.0]})


def write(lake: Lake, df: pd.DataFrame = FRAME, **given: Any) -> sw.Receipt | None:
    return to_deltalake(df, lake.uri, boto3_session=lake.session, **given)


def entries(lake: Lake, lock_table: str) -> list[str]:
    """The names of the commits that the lock table holds of the table."""
    items = lake.server.boto3_client("dynamodb").scan(TableName=lock_table)["Items"]
    path = lake.uri.removeprefix("s3://")
    return sorted(item["fileName"]["S"] for item in items if item["tablePath"]["S"].endswith(path))


# --- who decides --------------------------------------------------------------------------------------
def test_the_lock_is_real_again(lake: Lake, dynamodb_table: str) -> None:
    """With awswrangler and deltalake 1.6 the lock table stays empty."""
    for _ in range(2):
        write(lake, lock_dynamodb_table=dynamodb_table)
    commits = [name for name in entries(lake, dynamodb_table) if name.endswith(".json")]
    assert commits == [f"{version:020}.json" for version in range(2)]
    assert lake.table().metadata().configuration["safewrite.arbiter"] == "dynamodb"
    assert len(lake.rows()) == 6


def test_without_a_lock_table_conditional_put_decides(lake: Lake) -> None:
    write(lake)
    assert lake.table().metadata().configuration["safewrite.arbiter"] == "object-store"
    assert_frame_equal(lake.rows(), FRAME, check_dtype=False)


@pytest.mark.long
def test_a_call_without_a_lock_table_uses_the_one_that_the_table_records(
    lake: Lake, dynamodb_table: str
) -> None:
    write(lake, lock_dynamodb_table=dynamodb_table)
    write(lake)
    assert f"{1:020}.json" in entries(lake, dynamodb_table)


def test_a_call_without_a_lock_table_never_goes_past_one_that_it_does_not_know(
    lake: Lake, dynamodb_table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A temp file of a lock table's writer (Spark) lies there, and the table's properties name no lock table.

    There is a lock table of the default name, and it may not be the one.
    """
    deltalake.write_deltalake(lake.uri, FRAME, storage_options=lake.server.storage_options())
    bucket, _, prefix = lake.uri.removeprefix("s3://").partition("/")
    temp = f"{prefix}/_delta_log/.tmp/{1:020}.json.x"
    lake.server.boto3_client("s3").put_object(Bucket=bucket, Key=temp, Body=b"{}")
    monkeypatch.setattr("safewrite.delta.arbiter.DEFAULT_LOCK_TABLE", dynamodb_table)
    with pytest.raises(sw.UnsafeConfigError, match="lock") as caught:
        write(lake)
    assert caught.value.__notes__ == ["For to_deltalake: give lock_dynamodb_table=."]
    assert lake.table().version() == 0
    write(lake, lock_dynamodb_table=dynamodb_table)
    assert lake.table().version() == 1


@pytest.mark.sweep("s3_additional_kwargs")
@pytest.mark.parametrize("place", ["the environment", "s3_additional_kwargs"])
def test_a_lock_table_that_settings_name_is_used(
    lake: Lake, dynamodb_table: str, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    if place == "the environment":
        monkeypatch.setenv("DELTA_DYNAMO_TABLE_NAME", dynamodb_table)
        write(lake)
    else:
        options = {"AWS_S3_LOCKING_PROVIDER": "dynamodb", "DELTA_DYNAMO_TABLE_NAME": dynamodb_table}
        write(lake, s3_additional_kwargs=options)
    assert f"{0:020}.json" in entries(lake, dynamodb_table)


def test_another_arbiter_than_the_tables_is_refused_in_the_words_of_the_call(
    lake: Lake, dynamodb_table: str
) -> None:
    write(lake)
    with pytest.raises(sw.UnsafeConfigError, match="Nothing was written") as caught:
        write(lake, lock_dynamodb_table=dynamodb_table)
    assert caught.value.kind is sw.Kind.ARBITER_MISMATCH
    assert "leave lock_dynamodb_table= out" in "".join(caught.value.__notes__)


def test_a_lock_table_that_is_not_there_is_an_error_and_not_made(lake: Lake) -> None:
    with pytest.raises(sw.StorageError, match="locks create") as caught:
        write(lake, lock_dynamodb_table="nowhere")
    assert caught.value.kind is sw.Kind.LOCK_TABLE_UNUSABLE
    assert lake.objects() == []


def test_s3_additional_kwargs_reach_the_store(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ENDPOINT_URL")
    to_deltalake(FRAME, lake.uri, s3_additional_kwargs=lake.server.storage_options())
    assert len(lake.rows()) == 3


# --- modes --------------------------------------------------------------------------------------------
def test_overwrite_is_one_commit(lake: Lake) -> None:
    write(lake)
    receipt = write(lake, FRAME.head(1), mode="overwrite")
    assert receipt is not None
    assert (receipt.version, receipt.rows, receipt.removed_rows) == (1, 1, 3)
    assert lake.table().version() == 1
    assert len(lake.rows(0)) == 3
    assert lake.rows().id.tolist() == [1]


def test_append_is_the_default_and_makes_the_table(lake: Lake) -> None:
    assert [write(lake).version for _ in range(2)] == [0, 1]  # type: ignore[union-attr]
    assert len(lake.rows()) == 6


def test_error_and_ignore_write_only_a_new_table(tmp_path: Path) -> None:
    for mode in ("error", "ignore"):
        path = str(tmp_path / mode)
        first: Any = to_deltalake(FRAME, path, mode=mode)  # type: ignore[arg-type]
        assert (first.outcome, first.version, first.rows) == ("committed", 0, 3)
    assert to_deltalake(FRAME, str(tmp_path / "ignore"), mode="ignore") is None
    with pytest.raises(sw.ConflictError, match="already") as caught:
        to_deltalake(FRAME, str(tmp_path / "error"), mode="error")
    assert caught.value.kind is sw.Kind.TABLE_EXISTS
    for mode in ("error", "ignore"):
        assert deltalake.DeltaTable(tmp_path / mode).version() == 0


OTHERS = {"the same rows": FRAME, "other rows": FRAME.head(1), "other columns": FRAME[["id"]]}


@pytest.mark.sweep("other rows", "other columns-ignore", "other columns-error", "the same rows-ignore")
@pytest.mark.parametrize("mode", ["error", "ignore"])
@pytest.mark.parametrize("rows", OTHERS)
def test_of_calls_that_race_for_a_new_table_one_lands(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, mode: Any, rows: str
) -> None:
    """A rival with the same mode makes the table between our look and our write."""
    really = delta.opened

    def opened(*args: Any, **kwargs: Any) -> sw.Table:
        found = really(*args, **kwargs)
        monkeypatch.setattr(delta, "opened", really)
        write(lake, OTHERS[rows], mode=mode)
        return found

    monkeypatch.setattr(delta, "opened", opened)
    if mode == "error":
        with pytest.raises(sw.ConflictError):
            write(lake, mode=mode)
    else:
        receipt = write(lake, mode=mode)
        assert receipt is None or receipt.outcome == "already_committed"
    assert lake.table().version() == 0
    assert len(lake.rows()) == len(OTHERS[rows])


@pytest.mark.long
@pytest.mark.parametrize("locked", [False, True])
def test_the_key_of_a_first_write_is_void_once_the_table_is_dropped(
    lake: Lake, dynamodb_table: str, locked: bool
) -> None:
    """The lock table remembers keys past the table; of another table, so the rows are written."""
    arbiter: dict[str, Any] = {"lock_dynamodb_table": dynamodb_table} if locked else {}
    dynamodb, s3 = (lake.server.boto3_client(service) for service in ("dynamodb", "s3"))
    for _ in range(2):
        receipt = write(lake, mode="error", **arbiter)
        assert receipt is not None
        assert (receipt.outcome, len(lake.rows())) == ("committed", 3)
        bucket = lake.uri.removeprefix("s3://").partition("/")[0]
        for key in lake.objects():
            s3.delete_object(Bucket=bucket, Key=key)
        for item in dynamodb.scan(TableName=dynamodb_table)["Items"]:
            if item["fileName"]["S"].endswith(".json"):  # claims, which `safewrite locks clear` removes
                names = {name: item[name] for name in ("tablePath", "fileName")}
                dynamodb.delete_item(TableName=dynamodb_table, Key=names)
        left = str(dynamodb.scan(TableName=dynamodb_table)["Items"])
        assert (delta._FIRST in left) is locked


def test_a_frame_that_cannot_make_a_table_is_refused_in_each_mode(tmp_path: Path) -> None:
    for mode in ("append", "overwrite", "error", "ignore"):
        with pytest.raises(sw.NotCommittedError, match="Nothing was written"):
            to_deltalake(pd.DataFrame({"id": [None]}), str(tmp_path / "t"), mode=mode)  # type: ignore[arg-type]
    assert not (tmp_path / "t").exists()


# --- names of writes -----------------------------------------------------------------------------------
def test_a_second_delivery_is_recognised_by_its_key_or_batch(tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    for name in ({"key": "event"}, {"txn": ("app", 1)}):
        outcomes = [to_deltalake(FRAME, path, **name).outcome for _ in range(2)]  # type: ignore[arg-type, union-attr]
        assert outcomes == ["committed", "already_committed"]
    assert deltalake.DeltaTable(path).version() == 1
    with pytest.raises(sw.ReplayMismatchError):
        to_deltalake(FRAME.head(1), path, key="event")


# --- schema and partitions -----------------------------------------------------------------------------
def test_partition_columns_partition_a_new_table_and_may_be_left_out_later(lake: Lake) -> None:
    """awswrangler's own test reads one partition of two columns."""
    frame = pd.DataFrame({"id": [1, 2, 3], "flag": [True, False, True], "p": ["a", "a", "b"], "q": [1, 2, 2]})
    write(lake, frame, partition_cols=["p", "q"])
    write(lake, frame)
    assert lake.table().metadata().partition_columns == ["p", "q"]
    found = lake.table().to_pandas(filters=[("p", "=", "a"), ("q", "=", 1)])
    assert found.id.tolist() == [1, 1]


def test_overwrite_of_the_schema_adds_columns_and_an_older_version_has_them_not(lake: Lake) -> None:
    write(lake)
    wider = FRAME.assign(flag=[True, False, True])
    write(lake, wider, mode="overwrite", schema_mode="overwrite")
    assert lake.rows(0).columns.tolist() == FRAME.columns.tolist()
    assert_frame_equal(lake.rows(1), wider, check_dtype=False)


def test_merge_adds_columns_and_leaves_missing_ones_null(tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    to_deltalake(FRAME, path)
    to_deltalake(pd.DataFrame({"id": [4], "new": ["x"]}), path, schema_mode="merge")
    found = deltalake.DeltaTable(path).to_pyarrow_table().to_pylist()
    assert {"id": 4, "name": None, "rate": None, "new": "x"} in found
    assert len(found) == 4


def test_missing_columns_are_refused_without_a_schema_mode(tmp_path: Path) -> None:
    to_deltalake(FRAME, str(tmp_path / "t"))
    with pytest.raises(sw.WouldAlterError, match="name"):
        to_deltalake(FRAME[["id"]], str(tmp_path / "t"))


# --- the index -----------------------------------------------------------------------------------------
def test_the_index_is_left_out_or_written_under_awswranglers_names(tmp_path: Path) -> None:
    named = FRAME.set_index("id")
    to_deltalake(named, str(tmp_path / "without"))
    to_deltalake(named, str(tmp_path / "with"), index=True)
    to_deltalake(FRAME, str(tmp_path / "nameless"), index=True)
    to_deltalake(FRAME.set_index(["id", "name"]), str(tmp_path / "levels"), index=True)
    columns = {
        name: deltalake.DeltaTable(tmp_path / name).to_pyarrow_table().column_names
        for name in ("without", "with", "nameless", "levels")
    }
    assert columns == {
        "without": ["name", "rate"],
        "with": ["name", "rate", "id"],
        "nameless": ["id", "name", "rate", "__index_level_0__"],
        "levels": ["rate", "id", "name"],
    }
    assert deltalake.DeltaTable(tmp_path / "with").to_pandas().id.tolist() == [1, 2, 3]


def test_the_frame_of_the_caller_stays_as_it_was(tmp_path: Path) -> None:
    frame = FRAME.set_index("id")
    before = frame.copy(deep=True)
    to_deltalake(frame, str(tmp_path / "t"), index=True, dtype={"rate": "bigint"})
    assert_frame_equal(frame, before)


def test_dtype_makes_the_columns_of_a_new_table(tmp_path: Path) -> None:
    path = tmp_path / "t"
    dtype = {"id": "smallint", "rate": "decimal(6,2)", "absent": "int"}
    to_deltalake(FRAME, str(path), dtype=dtype)
    fields = json.loads(deltalake.DeltaTable(path).schema().to_json())["fields"]
    assert {one["name"]: one["type"] for one in fields} == {
        "id": "short",
        "name": "string",
        "rate": "decimal(6,2)",
    }
