"""Arguments that are refused, before anything is uploaded, and those that have no effect."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl
import pytest

import safewrite as sw
from safewrite.wrangler import to_deltalake, to_iceberg
from tests.wrangler.conftest import House, Lake

FRAME = pd.DataFrame({"id": [1, 2], "day": ["a", "b"]})
SAFE = re.compile(r"Nothing was written")
DELTA, ICEBERG = "to_deltalake", "to_iceberg"

CALLS: dict[str, Callable[..., Any]] = {DELTA: to_deltalake, ICEBERG: to_iceberg}
Refused = tuple[str, str, dict[str, Any], type[sw.SafewriteError], str]

# What is refused: the call, the argument that is wrong, all that is given, the error and what it must say.
REFUSED: dict[str, Refused] = {
    "polars": (DELTA, "df", {"df": pl.DataFrame({"id": [1]})}, sw.InvalidInputError, "pandas DataFrame"),
    "columns of one name": (
        DELTA,
        "df",
        {"df": pd.DataFrame([[1, 2]], columns=["id", "id"])},
        sw.InvalidInputError,
        "two columns",
    ),
    "rows without columns": (
        DELTA,
        "df",
        {"df": pd.DataFrame(index=range(3))},
        sw.InvalidInputError,
        "no columns",
    ),
    "a cast with loss": (DELTA, "dtype", {"dtype": {"day": "bigint"}}, sw.WouldAlterError, "day.*bigint"),
    "no type of Athena": (DELTA, "dtype", {"dtype": {"id": "long"}}, sw.InvalidInputError, "'long'"),
    "dtype as text": (DELTA, "dtype", {"dtype": "bigint"}, sw.InvalidInputError, "dtype= is a dict"),
    "partitions as text": (
        DELTA,
        "partition_cols",
        {"partition_cols": "day"},
        sw.InvalidInputError,
        r"\['day'\]",
    ),
    "keys as text": (DELTA, "partition_cols", {"partition_cols": "id"}, sw.InvalidInputError, r"\['id'\]"),
    "other partitions": (
        DELTA,
        "partition_cols",
        {"partition_cols": ["id"]},
        sw.InvalidInputError,
        "partitioned by",
    ),
    "a schema that replaces without its rows": (
        DELTA,
        "schema_mode",
        {"schema_mode": "overwrite"},
        sw.InvalidInputError,
        "mode='overwrite'",
    ),
    "a schema without a column": (
        DELTA,
        "schema_mode",
        {"schema_mode": "overwrite", "mode": "overwrite", "df": FRAME[["id"]]},
        sw.InvalidInputError,
        r"\['day'\] out",
    ),
    "a schema mode that is none": (
        DELTA,
        "schema_mode",
        {"schema_mode": "append"},
        sw.InvalidInputError,
        "merge",
    ),
    "unsafe renames": (
        DELTA,
        "s3_allow_unsafe_rename",
        {"s3_allow_unsafe_rename": True},
        sw.UnsafeConfigError,
        "overwrite each other",
    ),
    "unsafe renames by the back door": (
        DELTA,
        "s3_additional_kwargs",
        {"s3_additional_kwargs": {"AWS_S3_ALLOW_UNSAFE_RENAME": "true"}},
        sw.UnsafeConfigError,
        "UNSAFE_RENAME",
    ),
    "a key of KMS": (
        DELTA,
        "s3_additional_kwargs",
        {"s3_additional_kwargs": {"ServerSideEncryption": "aws:kms"}},
        sw.InvalidInputError,
        "bucket's default",
    ),
    "a key of KMS without its algorithm": (
        DELTA,
        "s3_additional_kwargs",
        {"s3_additional_kwargs": {"AWS_SSE_KMS_KEY_ID": "k"}},
        sw.InvalidInputError,
        "go with 'aws:kms'",
    ),
    "a key for a first write": (DELTA, "key", {"key": "e", "mode": "ignore"}, sw.InvalidInputError, "key="),
    "a batch for a first write": (
        DELTA,
        "txn",
        {"txn": ("a", 1), "mode": "error"},
        sw.InvalidInputError,
        "txn=",
    ),
    "no rows": (ICEBERG, "df", {"df": FRAME.head(0)}, sw.InvalidInputError, "no rows"),
    "another partitioning": (
        ICEBERG,
        "partition_cols",
        {"partition_cols": ["bucket(4, id)"]},
        sw.InvalidInputError,
        "partitioned by",
    ),
    "a key that is NULL": (
        ICEBERG,
        "merge_cols",
        {"merge_cols": ["day"], "df": pd.DataFrame({"id": [1], "day": [None]})},
        sw.InvalidInputError,
        "None",
    ),
    "a key that is a fraction": (
        ICEBERG,
        "merge_cols",
        {"merge_cols": ["id"], "df": pd.DataFrame({"id": [1.0], "day": ["a"]})},
        sw.InvalidInputError,
        "fractions",
    ),
    "a key twice": (
        ICEBERG,
        "merge_cols",
        {"merge_cols": ["id"], "df": pd.DataFrame({"id": [1, 1], "day": ["a", "b"]})},
        sw.InvalidInputError,
        "drop_duplicates",
    ),
    "a key that is no column": (
        ICEBERG,
        "merge_cols",
        {"merge_cols": ["nope"]},
        sw.InvalidInputError,
        "'nope'",
    ),
    "too many keys": (
        ICEBERG,
        "merge_cols",
        {"merge_cols": ["id", "day"], "df": pd.DataFrame({"id": range(1001), "day": ["a"] * 1001})},
        sw.InvalidInputError,
        "at most 1000",
    ),
    "keys with partitions": (
        ICEBERG,
        "merge_cols",
        {"merge_cols": ["id"], "mode": "overwrite_partitions", "partition_cols": ["day"]},
        sw.InvalidInputError,
        "without merge_cols",
    ),
    "rows that are there stay": (
        ICEBERG,
        "merge_condition",
        {"merge_cols": ["id"], "merge_condition": "ignore"},
        sw.InvalidInputError,
        "inserts only",
    ),
    "a condition that is none": (
        ICEBERG,
        "merge_condition",
        {"merge_cols": ["id"], "merge_condition": "conditional_merge"},
        sw.InvalidInputError,
        "'update', 'ignore'",
    ),
    "NULL as a key": (
        ICEBERG,
        "merge_match_nulls",
        {"merge_cols": ["id"], "merge_match_nulls": True},
        sw.InvalidInputError,
        "NULL for a key",
    ),
    "another catalog of Athena": (
        ICEBERG,
        "data_source",
        {"data_source": "hive"},
        sw.InvalidInputError,
        "catalog=",
    ),
    "encryption by KMS": (
        ICEBERG,
        "encryption",
        {"encryption": "SSE_KMS"},
        sw.InvalidInputError,
        "bucket's default",
    ),
    "KMS": (ICEBERG, "kms_key", {"kms_key": "k"}, sw.InvalidInputError, "bucket's default"),
    "a cast of an Iceberg column": (
        ICEBERG,
        "dtype",
        {"dtype": {"day": "date"}},
        sw.WouldAlterError,
        "day.*date",
    ),
    "a wider type": (
        ICEBERG,
        "schema_evolution",
        {"schema_evolution": True, "df": FRAME.assign(id=[1.5, 2.5])},
        sw.WouldAlterError,
        "id",
    ),
    "a new column": (
        ICEBERG,
        "schema_evolution",
        {"df": FRAME.assign(new=1)},
        sw.WouldAlterError,
        r"\['new'\].*schema_evolution=True",
    ),
}
# What is refused besides: modes and flags that are none, and what only Iceberg's page calls honoured.
WRONG: dict[str, tuple[str, dict[str, Any], str]] = {
    "a mode of Iceberg": (DELTA, {"mode": "overwrite_partitions"}, "mode= is one of"),
    "a mode of Delta": (ICEBERG, {"mode": "ignore"}, "mode= is one of"),
    "an index that is a text": (DELTA, {"index": "id"}, "index= is one of"),
    "a flag that is a number": (ICEBERG, {"schema_evolution": 1}, "schema_evolution= is one of"),
    "partitions without names": (ICEBERG, {"mode": "overwrite_partitions"}, "needs partition_cols"),
    "partitions by a transform": (
        ICEBERG,
        {"mode": "overwrite_partitions", "partition_cols": ["truncate(1, day)"]},
        "transform",
    ),
    "a frame without a column": (
        ICEBERG,
        {"fill_missing_columns_in_df": False, "df": FRAME[["id"]]},
        r"\['day'\].*fill_missing",
    ),
    "a size that is no number": (
        ICEBERG,
        {"table": "new", "additional_table_properties": {"write_target_data_file_size_bytes": "1 GB"}},
        "whole number",
    ),
    "a key that is missing": (DELTA, {"key": None}, "key=None"),
    "an index that is a column": (
        DELTA,
        {"df": FRAME.set_index("id", drop=False), "index": True},
        "two columns",
    ),
}


@pytest.mark.sweep(
    "KMS",
    "a cast of an Iceberg column",
    "keys with partitions",
    "NULL as a key",
    "a key twice",
    "another partitioning",
    "a key that is a fraction",
    "encryption by KMS",
    "a condition that is none",
)
@pytest.mark.parametrize("case", REFUSED.values(), ids=list(REFUSED))
def test_a_refusal_says_what_is_safe_and_leaves_the_table(
    tmp_path: Path, house: House, case: Refused
) -> None:
    call, _, given, error, word = case
    text = refused(call, given, error, folder=tmp_path, house=house)
    assert re.search(word, text), text


@pytest.mark.sweep("a size that is no number", "partitions without names")
@pytest.mark.parametrize(("call", "given", "word"), WRONG.values(), ids=list(WRONG))
def test_a_wrong_value_is_refused(
    tmp_path: Path, house: House, call: str, given: dict[str, Any], word: str
) -> None:
    text = refused(call, given, sw.NotCommittedError, folder=tmp_path, house=house)
    assert re.search(word, text), text


def refused(call: str, given: dict[str, Any], error: type[Exception], *, folder: Path, house: House) -> str:
    """The text of the refusal of a call on a table of two rows, which keeps its files."""
    given = {"df": FRAME} | given
    if call == DELTA:
        files = folder / "orders"
        to_deltalake(FRAME, str(files), partition_cols=["day"])
        given["path"] = str(files)
    else:
        files = Path(house.properties["warehouse"])
        to_iceberg(FRAME, house.database, house.table, catalog=house.properties, partition_cols=["day"])
        given = {"database": house.database, "table": house.table, "catalog": house.properties} | given
    before = sorted(files.rglob("*"))
    with pytest.raises(error) as caught:
        CALLS[call](**given)
    assert sorted(files.rglob("*")) == before
    assert SAFE.search(str(caught.value))
    return str(caught.value)


def test_an_argument_that_awswrangler_has_not_is_an_error_of_python(tmp_path: Path) -> None:
    for call in CALLS.values():
        with pytest.raises(TypeError, match="overwrite_schema"):
            call(FRAME, str(tmp_path / "t"), False, overwrite_schema=True)


# Values of arguments of to_iceberg that have no effect, each unlike the default.
NO_EFFECT: dict[str, Any] = {
    "temp_path": "s3://nowhere/temp",
    "keep_files": False,
    "s3_output": "s3://nowhere/output",
    "workgroup": "nobody",
    "s3_additional_kwargs": {"RequestPayer": "requester"},
    "pyarrow_additional_kwargs": {"coerce_timestamps": "ms"},
}


@pytest.mark.sweep("keep_files", "workgroup", "temp_path")
@pytest.mark.parametrize("argument", NO_EFFECT)
def test_what_is_about_athena_changes_nothing(house: House, argument: str) -> None:
    to_iceberg(
        FRAME, house.database, house.table, catalog=house.properties, **{argument: NO_EFFECT[argument]}
    )
    assert house.rows() == FRAME.to_dict("records")
    assert house.commits() == 1


def test_encryption_that_s3_does_by_itself_is_taken(house: House, lake: Lake) -> None:
    to_iceberg(FRAME, house.database, house.table, catalog=house.properties, encryption="SSE_S3")
    to_deltalake(
        FRAME, lake.uri, boto3_session=lake.session, s3_additional_kwargs={"ServerSideEncryption": "AES256"}
    )
    assert len(house.rows()) == len(lake.rows()) == 2


def test_glues_own_data_source_is_taken(house: House) -> None:
    to_iceberg(FRAME, house.database, house.table, catalog=house.properties, data_source="AwsDataCatalog")
    assert len(house.rows()) == 2
