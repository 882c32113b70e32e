"""Tables with liquid clustering: each new file has statistics of the clustering columns (PROTOCOL.md, "Clustered Table")."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import safewrite as sw
from safewrite.delta.log import actions
from safewrite.delta.log.indexing import CLUSTERING, clustering_of
from tests.delta.logs import body

WIDE = pa.schema(
    [
        *((f"c{number}", pa.int32()) for number in range(33)),
        ("z", pa.string()),
        ("s", pa.struct({"x": pa.int64()})),
    ]
)
LISTED = {
    "minReaderVersion": 1,
    "minWriterVersion": 7,
    "writerFeatures": ["clustering", "domainMetadata", "invariants", "appendOnly"],
}


def row(number: int, z: str | None) -> dict[str, Any]:
    return dict.fromkeys(WIDE.names[:33], number) | {"z": z, "s": {"x": number}}


def domain(*columns: Any, removed: bool = False) -> dict[str, Any]:
    told = json.dumps({"clusteringColumns": list(columns), "domainName": CLUSTERING})
    return {"domainMetadata": {"domain": CLUSTERING, "configuration": told, "removed": removed}}


def clustered(root: Path, *columns: Any, properties: dict[str, str] | None = None) -> sw.Table:
    sw.open(root, create=True, schema=WIDE, properties=properties or {})
    (root / actions.commit_path(1)).write_bytes(
        body({"commitInfo": {"operation": "CLUSTER BY"}}, {"protocol": LISTED}, domain(*columns))
    )
    return sw.open(root)


def stats(root: Path, version: int) -> list[dict[str, Any]]:
    lines = map(json.loads, (root / actions.commit_path(version)).read_text().splitlines())
    return [json.loads(line["add"]["stats"]) for line in lines if "add" in line]


@pytest.mark.sweep("columns1", "properties0", "properties2")
@pytest.mark.parametrize("columns", [(["z"], ["s", "x"]), ("z", ["s", "x"])])
@pytest.mark.parametrize(
    "properties", [{}, {"delta.dataSkippingStatsColumns": "c1"}, {"delta.dataSkippingNumIndexedCols": "0"}]
)
def test_files_have_statistics_of_clustering_columns_wherever_these_stand(tmp_path, columns, properties):
    """By each verb, after a checkpoint too; where all values are NULL their count says it."""
    table = clustered(tmp_path / "t", *columns, properties=properties)
    table.append([row(1, "b"), row(2, "a")])
    table.append([row(3, None)])
    assert table.checkpoint()
    table = sw.open(tmp_path / "t")
    table.apply_changes([row(2, "e") | {"c1": 9}], keys=["c0"], sequence_by=["c1"])
    table.delete("c0 = 1")
    seen = [one for version in range(2, table.version + 1) for one in stats(tmp_path / "t", version)]
    assert len(seen) >= 4
    for one in seen:
        assert {"z", "s"} <= one["nullCount"].keys()
        assert one["nullCount"]["z"] == one["numRecords"] or {"z", "s"} <= one["minValues"].keys()
    assert (seen[0]["minValues"]["z"], seen[0]["maxValues"]["z"]) == ("a", "b")
    assert seen[0]["minValues"]["s"] == {"x": 1}
    assert sorted((one["c0"], one["z"]) for one in table.rows(where="true").to_pylist()) == [
        (2, "e"),
        (3, None),
    ]


def test_what_a_table_is_clustered_by_is_read_from_commits_and_checkpoints_and_gone_where_it_is_removed(
    tmp_path,
):
    table = clustered(tmp_path / "t", ["z"])
    table.append([row(1, "b")])
    assert table.checkpoint()
    (tmp_path / "t" / actions.commit_path(3)).write_bytes(body({"commitInfo": {}}, domain(removed=True)))
    table = sw.open(tmp_path / "t")
    table.append([row(1, "b")])
    assert "z" not in stats(tmp_path / "t", 4)[0]["nullCount"]


def test_a_domain_that_names_no_columns_is_refused_with_the_way_out(tmp_path):
    for text in (
        "{}",
        "[]",
        "x",
        '{"clusteringColumns": "ab"}',
        '{"clusteringColumns": null}',
        json.dumps({"clusteringColumns": [[]]}),
        json.dumps({"clusteringColumns": [3]}),
    ):
        with pytest.raises(ValueError, match="names no columns"):
            clustering_of({CLUSTERING: text})
    table = clustered(tmp_path / "t", [])
    with pytest.raises(sw.UnsupportedTableError, match="CLUSTER BY NONE"):
        table.append([row(1, "b")])
    assert clustering_of({}) == ()
    assert clustering_of({CLUSTERING: json.dumps({"clusteringColumns": []})}) == ()


def test_a_domain_without_a_name_says_nothing(tmp_path):
    """No engine writes one; the table is read and written, and gets checkpoints, as without it."""
    clustered(tmp_path / "t", ["z"])
    nameless = [
        {"domainMetadata": {"configuration": "x", "removed": False}},
        {"domainMetadata": {"domain": None}},
    ]
    (tmp_path / "t" / actions.commit_path(2)).write_bytes(body({"commitInfo": {}}, *nameless))
    table = sw.open(tmp_path / "t")
    table.append([row(1, "b")])
    assert table.checkpoint()
    assert sw.open(tmp_path / "t").row_count() == 1
    assert "z" in stats(tmp_path / "t", 3)[0]["nullCount"]
