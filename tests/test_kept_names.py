"""T4-A9: names of columns that a format keeps for itself are refused where a column is made, as names that Spark refuses are."""

from __future__ import annotations

import json
from pathlib import Path

import deltalake
import pyarrow as pa
import pytest

import safewrite
from safewrite.values.kept_names import DELTA_FEED, DELTA_VECTORS

FEED = {"delta.enableChangeDataFeed": "true"}
VECTORS = {"delta.enableDeletionVectors": "true"}
DELTA = [(FEED, name) for name in (*sorted(DELTA_FEED), "_Change_Type")] + [
    (VECTORS, name) for name in sorted(DELTA_VECTORS)
]


@pytest.mark.parametrize(("properties", "name"), DELTA)
def test_delta_keeps_names_where_a_feature_uses_them(tmp_path: Path, properties: dict[str, str], name: str):
    schema = pa.schema([("id", pa.int64()), (name, pa.string())])
    row = [{"id": 1, name: "x"}]
    with pytest.raises(safewrite.InvalidInputError, match=f"'{name}' has a name that Delta keeps"):
        safewrite.create(str(tmp_path / "new"), schema, properties=properties)
    with pytest.raises(safewrite.InvalidInputError, match=f"'{name}' has a name that Delta keeps"):
        safewrite.open(str(tmp_path / "first"), create=True, properties=properties).append(row)
    table = safewrite.create(str(tmp_path / "merged"), schema.remove(1), properties=properties)
    for write in (
        lambda: table.append(row, schema_mode="merge"),
        lambda: table.overwrite(row, schema_mode="merge"),
    ):
        with pytest.raises(safewrite.InvalidInputError, match=f"'{name}' has a name that Delta keeps"):
            write()
    one, other = table.append_many([("a", [{"id": 1}]), ("b", row)], schema_mode="merge")
    assert one.outcome == "committed"
    assert "name that Delta keeps" in str(other)
    assert not list(tmp_path.glob("*/*.parquet"))[1:]
    plain = safewrite.create(
        str(tmp_path / "plain"), schema
    )  # without the feature each is a name like others
    plain.append(row)
    nested = safewrite.create(str(tmp_path / "nested"), schema.remove(1), properties=properties)
    nested.append([{"id": 1, "s": {name: "x"}}], schema_mode="merge")


def test_a_table_whose_feed_cannot_be_read_says_the_way_out_and_is_read(tmp_path: Path):
    """Earlier builds made such tables; Spark writes to none of them either."""
    at = str(tmp_path / "t")
    deltalake.write_deltalake(at, pa.table({"id": [1], "_commit_version": [7]}))
    log = tmp_path / "t" / "_delta_log" / f"{0:020}.json"
    actions = [json.loads(line) for line in log.read_text().splitlines()]
    for action in actions:
        if "metaData" in action:
            action["metaData"]["configuration"] |= FEED
        if "protocol" in action:
            action["protocol"] = {"minReaderVersion": 1, "minWriterVersion": 4}
    log.write_text("\n".join(map(json.dumps, actions)))
    for write in (
        lambda: safewrite.open(at).append([{"id": 2, "_commit_version": 8}]),
        lambda: safewrite.open(at).delete("id = 1"),
    ):
        with pytest.raises(
            safewrite.UnsupportedTableError,
            match=r"_commit_version are columns of its change data feed.*enableChangeDataFeed = false",
        ):
            write()
