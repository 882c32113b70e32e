"""Slips of a user: a mistyped address, a missing id, a setting of a wrong type are refused before anything is written."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import safewrite as sw
from bench.servers.servers import Ministack
from safewrite.arguments.options import parse_address
from tests.each import each

ROWS = pa.table({"id": [1]})
SCHEMA = ROWS.schema


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a slip makes on the local disk is seen in a folder that was empty."""
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)


@each(
    ("address", "hint"),
    [
        ("s3:/lab/oops", "s3://bucket/path"),
        ("s3:lab/oops", "s3://bucket/path"),
        ("S3:/lab/oops", "s3://bucket/path"),
        ("arn:aws:s3:::lab/x", "s3://bucket/path"),
        ("gs:/lab/x", "://"),
        ("c:folder", "./c:folder"),
        ("lab/x", "s3://lab/x"),
        ("orders", "./orders"),
        ("sales.orders", "catalog="),
        ("a.b.orders", "catalog="),
        ("s3://", "no bucket"),
        ("s3://${BUCKET}/x", "variable"),
        ("s3://{bucket}/x", "variable"),
        ("s3://arn:aws:s3:eu-west-1:1:accesspoint/ap/x", "alias"),
        ("s3://b_/../x", "'..'"),
        ("s3://lab/p%20q", "character"),
        ("s3://lab/q?x", "character"),
        ("s3://lab/h#", "character"),
        ("s3://lab/a\\b", "character"),
        ("s3://lab/a\tb", "character"),
        ("gs://lab/x", "not known"),
        ("S3://lab/x", "not known"),
        ("file://", "no folder"),
        ("file://host/x", "no folder"),
        ("file:///", "no folder"),
        ("file:///a?b", "query"),
        ("/lake/a%20b", "character"),
        ("./a\nb", "character"),
        ("", "not ''"),
        ("  ", "address"),
        (None, "address"),
        (5, "address"),
        (b"s3://lab/x", "address"),
    ],
)
def test_an_address_that_could_be_a_slip_is_refused(address: Any, hint: str) -> None:
    """Committed to the local disk with a receipt, rows are lost with the sandbox."""
    for call in (lambda: sw.open(address, create=True), lambda: sw.create(address, SCHEMA)):
        with pytest.raises(sw.InvalidInputError, match="Nothing was written") as caught:
            call()
        assert hint in str(caught.value)
    assert list(Path.cwd().iterdir()) == []


@pytest.mark.parametrize(
    "address", ["./lake/orders", "../here/orders", Path("orders"), Path("a.b"), Path("s3:/x")]
)
def test_a_folder_that_is_meant_as_one_is_made(address: Any) -> None:
    sw.open(address, create=True).append(ROWS)
    assert (Path(address) / "_delta_log").is_dir()


def test_a_table_that_is_there_is_opened_by_its_bare_name() -> None:
    sw.open("./orders", create=True).append(ROWS)
    assert sw.open("orders").append(ROWS).version == 1


def test_a_file_url_is_decoded_as_other_engines_decode_it(tmp_path: Path) -> None:
    import deltalake

    uri = (tmp_path / "a b").as_uri()
    assert "%20" in uri
    sw.open(uri, create=True).append(ROWS)
    assert deltalake.DeltaTable(uri).to_pyarrow_table().num_rows == 1
    assert (tmp_path / "a b" / "_delta_log").is_dir()


@pytest.mark.parametrize("address", ["./t", "/lake/t", Path("t"), "file:///lake/t"])
def test_a_local_table_in_a_lambda_function_is_refused(address: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_LAMBDA_FUNCTION_NAME", "orders")
    with pytest.raises(sw.UnsafeConfigError, match="Lambda"):
        sw.open(address, create=True)
    assert parse_address("/mnt/efs/t").uri == "/mnt/efs/t"
    assert parse_address("s3://lab/t").bucket == "lab"


# --- names of writes ----------------------------------------------------------------------------------
VERBS: dict[str, Callable[..., Any]] = {
    "append": lambda table, **name: table.append(ROWS, **name),
    "overwrite": lambda table, **name: table.overwrite(ROWS, **name),
    "delete": lambda table, **name: table.delete("id = 1", **name),
}


@pytest.fixture
def table() -> sw.Table:
    made = sw.create("./t", SCHEMA)
    assert isinstance(made, sw.Table)
    return made


@each("verb", VERBS)
@each(
    "name",
    [
        {"key": None},
        {"txn": None},
        {"key": None, "txn": None},
        {"key": ""},
        {"key": " "},
        {"key": 5},
        {"key": b"k"},
        {"key": "a\ud800"},
        {"key": "k" * 1025},
        {"key": "k", "txn": ("a", 1)},
        {"txn": ("a",)},
        {"txn": ("a", -1)},
        {"txn": ("a", 1.5)},
        {"txn": ("a", True)},
        {"txn": ("a", 2**63)},
        {"txn": ("", 1)},
        {"txn": ("a\ud800", 1)},
        {"txn": (5, 1)},
        {"txn": "a1"},
        {"txn": ("safewrite:fingerprint:app", 1)},
        {"txn": ("safewrite:version:app", 1)},
        {"txn": ("safewrite:x", 1)},
        {"key": np.array([1, 2])},
        {"txn": np.array([1, 2])},
    ],
)
def test_a_name_that_names_nothing_is_refused(table: sw.Table, verb: str, name: dict[str, Any]) -> None:
    """``key=event.get("messageId")`` of an event without one: each delivery would write its rows again."""
    with pytest.raises(sw.InvalidInputError, match="Nothing was written"):
        VERBS[verb](table, **name)
    assert table.refresh().version == 0


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize(
    "name",
    [
        {},
        {"key": "k"},
        {"key": "k", "txn": None},
        {"txn": ("a", np.int64(5))},
        {"key": None, "txn": ["a", 5]},
    ],
)
def test_a_write_is_named_by_what_is_given(table: sw.Table, verb: str, name: dict[str, Any]) -> None:
    receipt = VERBS[verb](table, **name)
    assert receipt.outcome == "committed"
    assert (receipt.key == "k") is (name.get("key") == "k")
    assert (receipt.txn == ("a", 5)) is ("txn" in name and name["txn"] is not None)


@pytest.mark.parametrize("key", ["", None, 5, "a\ud800", "k" * 1025])
def test_a_key_that_names_nothing_cannot_be_resolved(table: sw.Table, key: Any) -> None:
    with pytest.raises(sw.InvalidInputError):
        table.resolve(key)


@pytest.mark.parametrize("app_id", ["", None, 5, " ", "safewrite:x", "a\ud800"])
def test_a_sink_needs_a_name_of_its_stream(table: sw.Table, app_id: Any) -> None:
    with pytest.raises(sw.InvalidInputError):
        table.sink(app_id=app_id)


# --- settings -----------------------------------------------------------------------------------------
WRONG: dict[str, list[Any]] = {
    "timeout_s": ["5", 0, -1, float("nan"), None, True, [5]],
    "lease_s": ["5", 0, -1, float("nan"), None, True],
    "attempts_max": ["5", 0, -1, 1.5, None, True],
    "target_file_size": ["1", 0, -1, 1.5, True],
    "checkpoints": ["no", 1, None],
    "strict": ["no", 1, None],
    "create": ["no", 1, None],
    "partition_by": ["day", 5, None, [5], [None], {"id": 1}, b"id"],
    "properties": ["x", 5, {"a": None}, {5: "a"}, {"a": ["b"]}, [("a", "b")]],
    "storage_options": ["x", 5, {"client_kwargs": {"endpoint_url": "x"}}, {5: "a"}, {"AWS_REGION": None}],
    "lock_table": [5, "", " "],
    "arbiter": ["nope", 5, ""],
    "boto3_session": ["x", 5],
}


@each(("name", "value"), [(name, value) for name, some in WRONG.items() for value in some])
@each("address", ["./t", "s3://lab/t"])
def test_a_setting_of_a_wrong_type_is_refused_at_once(name: str, value: Any, address: str) -> None:
    """Not in the middle of a commit, and not taken for something else."""
    settings = {"create": True, "storage_options": {"AWS_ENDPOINT_URL": "http://127.0.0.1:9"}, name: value}
    with pytest.raises(sw.InvalidInputError, match=name):
        sw.open(address, **settings)
    assert list(Path.cwd().iterdir()) == []


@pytest.mark.parametrize("value", [np.int64(7), 7.0, np.float32(7)])
def test_numbers_of_numpy_are_numbers(value: Any) -> None:
    assert sw.open("./t", create=True, timeout_s=value, lease_s=value).limits.timeout_s == 7.0  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "schema",
    [
        {"id": "int64"},
        [("id", "int64")],
        ROWS,
        None,
        "id: int64",
        pa.schema({"id": pa.null()}),
        pa.schema({}),
    ],
)
def test_a_schema_is_one_of_arrow(schema: Any) -> None:
    with pytest.raises(sw.InvalidInputError, match="Nothing was written"):
        sw.create("./t", schema)
    assert list(Path.cwd().iterdir()) == []


def test_an_argument_that_is_not_there_is_refused_as_python_does() -> None:
    with pytest.raises(TypeError, match="unexpected keyword"):
        sw.open("./t", bogus=1)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="unexpected keyword"):
        sw.create("./t", SCHEMA, create=True)  # type: ignore[call-arg]


# --- properties ---------------------------------------------------------------------------------------
@each(
    "properties",
    [
        {"delta.logRetentionDuration": "interval 1 hours"},
        {"delta.logRetentionDuration": "soon"},
        {"delta.setTransactionRetentionDuration": "interval 1 days"},
        {"delta.checkpointInterval": "0"},
        {"delta.checkpointInterval": "abc"},
        {"delta.checkpointInterval": "-3"},
        {"delta.enableDeletionVectors": "perhaps"},
        {"delta.enableRowTracking": "perhaps"},
        {"delta.columnMapping.mode": "name"},
        {"delta.checkpointPolicy": "v2"},
        {"delta.enableInCommitTimestamps": "2026"},
        {"delta.constraints.positive": "id > 0"},
        {"delta.bogus": "1"},
        {"delta.dataSkippingNumIndexedCols": "x"},
        {"delta.deletedFileRetentionDuration": "x"},
        {"delta.appendOnly": "maybe"},
        {"safewrite.arbiter": "object-store"},
        {"delta.minReaderVersion": "3"},
        {"delta.feature.deletionVectors": "supported"},
    ],
)
def test_a_table_that_would_be_refused_afterwards_is_not_made(properties: dict[str, str]) -> None:
    for make in (
        lambda: sw.create("./t", SCHEMA, properties=properties),
        lambda: sw.open("./t", create=True, properties=properties).append(ROWS),
    ):
        with pytest.raises(sw.NotCommittedError, match="not created"):
            make()
    assert not os.path.exists("t/_delta_log")  # noqa: PTH110


@pytest.mark.parametrize(
    "properties",
    [
        {"delta.logRetentionDuration": "interval 30 days", "delta.checkpointInterval": "20"},
        {"delta.appendOnly": True, "delta.checkpointInterval": 5},
        {"delta.enableChangeDataFeed": "true"},
        {"delta.dataSkippingNumIndexedCols": "3", "delta.dataSkippingStatsColumns": "id"},
        {"delta.randomizeFilePrefixes": "false", "owner": "me", "x.y": "z"},
        {"delta.setTransactionRetentionDuration": "interval 30 days"},
        {"delta.enableExpiredLogCleanup": "false", "delta.logRetentionDuration": "interval 1 hours"},
    ],
)
def test_properties_that_are_kept_are_taken(properties: dict[str, Any]) -> None:
    table = sw.create("./t", SCHEMA, properties=properties)
    assert sw.open("./t").append(ROWS).version == 1
    kept = {name: str(value).lower() for name, value in properties.items()}
    assert {name: value.lower() for name, value in table.properties.items()} == kept | {
        "safewrite.arbiter": "local"
    }


@pytest.mark.parametrize(
    "settings",
    [{"type": "hadoop"}, {"catalog-impl": "org.apache.iceberg.hadoop.HadoopCatalog"}],
    ids=lambda one: next(iter(one)),
)
def test_a_catalog_of_files_alone_is_refused(settings: dict[str, str]) -> None:  # C6
    with pytest.raises(sw.UnsafeConfigError, match="hadoop"):
        sw.open("db.t", catalog={**settings, "warehouse": "s3://lab/w"})


def test_a_home_folders_sign_is_no_folder() -> None:
    """T4-A13: a receipt told of rows in a folder called ``~``."""
    with pytest.raises(sw.InvalidInputError, match="shell's sign for a home folder"):
        sw.open("~/lake/orders", create=True)
    sw.open("./~/lake/orders", create=True).append(ROWS)


def test_a_table_within_another_is_refused_where_it_would_be_made(tmp_path: Path) -> None:
    """T4-A13: a clean-up of the outer one would take its files; one that is there is opened."""
    sw.open(tmp_path / "lake", create=True).append(ROWS)
    for make in (
        lambda: sw.open(tmp_path / "lake" / "a" / "orders", create=True),
        lambda: sw.create(tmp_path / "lake" / "orders", SCHEMA),
    ):
        with pytest.raises(sw.InvalidInputError, match="is within another Delta table"):
            make()
    assert [
        path.name for path in (tmp_path / "lake").iterdir() if path.is_dir() and path.name[0] != "_"
    ] == []
    sw.open(tmp_path / "shop" / "orders", create=True).append(ROWS)
    sw.open(tmp_path / "shop", create=True).append(ROWS)  # made around it, as a mover may leave it
    sw.open(tmp_path / "shop" / "orders").append(ROWS)


def test_a_table_at_a_buckets_root_or_within_another_is_refused_on_s3(ministack: Ministack) -> None:
    bucket, how = (
        f"slip-{uuid.uuid4().hex[:8]}",
        {"storage_options": ministack.storage_options(), "create": True, "arbiter": "object-store"},
    )
    ministack.boto3_client("s3").create_bucket(Bucket=bucket)
    with pytest.raises(sw.InvalidInputError, match="is the whole bucket"):
        sw.open(f"s3://{bucket}/", **how)
    sw.open(f"s3://{bucket}/lake", **how).append(ROWS)
    with pytest.raises(sw.InvalidInputError, match=f"within another Delta table, s3://{bucket}/lake"):
        sw.open(f"s3://{bucket}/lake/a/orders", **how)
    sw.open(f"s3://{bucket}/lakes/orders", **how).append(ROWS)
