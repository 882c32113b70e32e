"""V2 checkpoints are read in each of their forms, as other engines write them (PROTOCOL.md, "V2 Spec"; T4-D1)."""

from __future__ import annotations

import io
import itertools
import json
import math
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import safewrite as sw
from safewrite.delta.log import actions
from safewrite.delta.log.checkpoint_file import SCHEMA, encoded
from safewrite.delta.log.replay import load_files, read_log
from safewrite.delta.log.snapshot import load
from safewrite.delta.maintenance.doctor import examine
from safewrite.delta.maintenance.inspection import inspect_table
from safewrite.errors import Kind, StorageError, UnsupportedTableError
from tests.delta.logs import Table, add, body, metadata, remove

FEATURES = ["v2Checkpoint"]
PROTOCOL = {
    "protocol": {
        "minReaderVersion": 3,
        "minWriterVersion": 7,
        "readerFeatures": FEATURES,
        "writerFeatures": FEATURES,
    }
}
ID = "80a083e8-7026-4e79-81be-64bd76c43a1"
NAMES = {
    "classic": "{version:020}.checkpoint.parquet",
    "parquet": "{version:020}.checkpoint." + ID + "1.parquet",
    "json": "{version:020}.checkpoint." + ID + "2.json",
}
SIDECAR = pa.struct({"path": pa.string(), "sizeInBytes": pa.int64(), "modificationTime": pa.int64()})


def parquet_of(lines: list[dict[str, Any]]) -> bytes:
    """Actions as Parquet, in the columns of a checkpoint and of V2's own."""

    def plain(action: dict[str, Any]) -> dict[str, Any]:
        return {
            key: list(value.items()) if key in {"partitionValues", "configuration"} else value
            for key, value in action.items()
        }

    columns = {}
    for field in [*SCHEMA, pa.field("sidecar", SIDECAR)]:
        if any(field.name in line for line in lines):
            found = [plain(line[field.name]) if field.name in line else None for line in lines]
            columns[field.name] = pa.array(found, field.type)
    pq.write_table(pa.table(columns), sink := io.BytesIO())
    return sink.getvalue()


def with_checkpoint(table: Table, name: str, *, sidecars: int, hint: bool = True) -> str:
    """Put a V2 checkpoint of the newest version there, and take away all that it stands for."""
    files = table.run(load_files(table.run(load())))
    state = files.state
    rows = [{"add": one} for one in files.adds.values()] + [
        {"remove": one} for one in files.tombstones.values()
    ]
    whole = [
        {"checkpointMetadata": {"version": state.version}},
        {"protocol": state.protocol},
        {"metaData": state.metadata},
    ]
    whole += [{"txn": one} for one in files.txns.values()]
    for number in range(sidecars):
        own = parquet_of(rows[number::sidecars])
        file = f"{state.version}-{number} a.parquet"
        table.blobs[f"_delta_log/_sidecars/{file}"] = own
        spelled = file.replace(" ", "%20")
        spelled = spelled if number else f"s3://lake/t/_delta_log/_sidecars/{spelled}"
        whole.append({"sidecar": {"path": spelled, "sizeInBytes": len(own), "modificationTime": 1}})
    whole += [] if sidecars else rows
    file = NAMES[name].format(version=state.version)
    table.blobs[f"_delta_log/{file}"] = body(*whole) if file.endswith(".json") else parquet_of(whole)
    if hint:
        told = {
            "version": state.version,
            "size": len(whole),
            "v2Checkpoint": {"path": file, "sizeInBytes": 1},
        }
        table.blobs[actions.LAST_CHECKPOINT] = json.dumps(told).encode()
    for version in range(state.version):
        table.blobs.pop(actions.commit_path(version), None)
    return f"_delta_log/{file}"


def table_of() -> Table:
    table = Table(PROTOCOL, metadata(), add("a"), add("b"), {"txn": {"appId": "app", "version": 7}})
    table.commit(remove("a"), add("c"))
    return table


def live(table: Table) -> list[str]:
    return sorted(path for path, _ in table.run(load_files(table.run(load()))).adds)


@pytest.mark.sweep(
    "classic-0",
    "parquet-1",
    "json-2",
    "parquet-0-False",
    "json-0-True",
    "classic-2-False",
    "classic-1-False",
    "parquet-2-False",
    "json-1-False",
)
@pytest.mark.parametrize(("name", "sidecars", "hint"), [*itertools.product(NAMES, (0, 1, 2), (True, False))])
def test_a_table_is_read_by_a_v2_checkpoint_of_any_form(name, sidecars, hint):
    """What came before it is gone, as after log clean-up; commits after it count."""
    table = table_of()
    with_checkpoint(table, name, sidecars=sidecars, hint=hint)
    state = table.run(load())
    assert (state.version, state.txns["app"]) == (1, 7)
    assert live(table) == ["b", "c"]
    assert {path for path, _ in table.run(load_files(state)).tombstones} == {"a"}
    table.commit(remove("b"), add("d"), {"txn": {"appId": "app", "version": 8}})
    assert live(table) == ["c", "d"]
    assert table.run(load(state)).txns["app"] == table.run(load()).txns["app"] == 8


def test_the_checkpoint_in_our_form_of_such_a_table_holds_the_same_files():
    """What a table that dropped the feature is written by."""
    for name, sidecars in itertools.product(NAMES, (0, 2)):
        table = table_of()
        with_checkpoint(table, name, sidecars=sidecars)
        table.commit(add("d"))
        made = pq.read_table(io.BytesIO(encoded(table.run(read_log(table.run(load()))), math.inf).body))
        paths = [one["path"] for one in made.column("add").to_pylist() if one]
        assert sorted(paths) == ["b", "c", "d"]


def test_of_several_checkpoints_of_one_version_any_whole_one_will_do():
    first = with_checkpoint(table := table_of(), "json", sidecars=2)
    second = with_checkpoint(other := table_of(), "parquet", sidecars=0)
    table.blobs[second] = other.blobs[second]
    for torn in (first, second):
        good, table.blobs[torn] = table.blobs[torn], b"?"
        assert live(table) == ["b", "c"]
        table.blobs[torn] = good
    table.blobs[first] = table.blobs[second] = b"?"
    with pytest.raises(StorageError) as caught:
        live(table)
    assert caught.value.kind is Kind.CORRUPT_LOG


def test_a_sidecar_that_is_gone_or_another_is_told_and_nothing_is_read_without_it():
    table = table_of()
    with_checkpoint(table, "json", sidecars=2)
    (gone, *_) = [path for path in table.blobs if "_sidecars" in path]
    blob = table.blobs.pop(gone)
    with pytest.raises(StorageError, match="_sidecars"):
        live(table)
    table.blobs[gone] = blob[:-1]
    with pytest.raises(StorageError, match="bytes") as caught:
        live(table)
    assert caught.value.kind is Kind.CORRUPT_LOG


def test_a_hint_of_a_checkpoint_of_another_name_or_version_is_only_a_hint():
    for path in ("x.json", "../../x", 3, NAMES["json"].format(version=9)):
        table = table_of()
        with_checkpoint(table, "json", sidecars=1)
        table.blobs[actions.LAST_CHECKPOINT] = json.dumps(
            {"version": 1, "v2Checkpoint": {"path": path}}
        ).encode()
        assert live(table) == ["b", "c"]


# --- open, doctor, and what is refused ------------------------------------------------------------------
def lake(tmp_path: Path, name: str, sidecars: int) -> Path:
    """A table of safewrite's that got such a checkpoint, its commits cleaned up behind it."""
    root = tmp_path / f"{name}{sidecars}"
    made = sw.open(root, create=True)
    for number in range(3):
        made.append([{"n": number, "v": f"v{number}"}], key=f"k{number}")
    copy = Table.of_folder(root)
    copy.commit(PROTOCOL)
    with_checkpoint(copy, name, sidecars=sidecars)
    for path in root.glob("_delta_log/*"):
        path.unlink()
    return copy.to_folder(root)


@pytest.mark.sweep("classic-2", "json-0")
@pytest.mark.parametrize(("name", "sidecars"), [("classic", 2), ("parquet", 1), ("json", 0)])
def test_such_a_table_is_opened_read_called_sound_and_written_by_every_verb(tmp_path, name, sidecars):
    """T4-D1, T4-D4: no `log_hole`, no garbled `_last_checkpoint`.  Our checkpoint is a classic one, and stands for all before it."""
    root = lake(tmp_path, name, sidecars)
    table = sw.open(root)
    assert table.rows(where="n >= 1").sort_by("n").to_pylist() == [{"n": 1, "v": "v1"}, {"n": 2, "v": "v2"}]
    assert table.row_count() == 3
    assert sum(one.read().num_rows for one in table.added_since(None)) == 3
    assert len(table.history()) == 1
    assert examine(inspect_table(root), environment={}) == []
    table.check_writable()
    table.append([{"n": 9, "v": "x"}], key="late")
    assert table.append([{"n": 9, "v": "x"}], key="late").outcome == "already_committed"
    table.append_many([("k9", [{"n": 10, "v": "x"}])])
    table.apply_changes([{"n": 0, "v": "z"}], keys=["n"], sequence_by=["v"])
    table.delete("n = 1")
    table.overwrite([{"n": 2, "v": "w"}], where=[("n", "=", 2)])
    table.sink(app_id="s")([{"n": 11, "v": "x"}], 1)
    assert table.checkpoint() is True
    (root / actions.LAST_CHECKPOINT).unlink()
    for path in root.glob("_delta_log/*"):
        if ".checkpoint." not in path.name or path.name < f"{table.refresh().version:020}":
            path.unlink() if path.is_file() else None
    expected = [(0, "z"), (2, "w"), (9, "x"), (10, "x"), (11, "x")]
    query = deltalake.QueryBuilder().register("t", deltalake.DeltaTable(root))
    read = pa.table(query.execute("SELECT n, v FROM t").read_all()).to_pylist()
    assert sorted((row["n"], row["v"]) for row in read) == expected
    assert sorted((row["n"], row["v"]) for row in sw.open(root).rows(where="true").to_pylist()) == expected


def test_statistics_that_a_sidecar_has_in_types_alone_stay_in_our_checkpoint(tmp_path):
    """Readers skip no less, and a clustered table keeps what its files must have."""
    root = lake(tmp_path, "json", 1)
    (sidecar,) = root.glob("_delta_log/_sidecars/*")
    rows = pq.read_table(sidecar).column("add").drop_null().to_pylist()
    bounds = pa.struct({"n": pa.int64(), "v": pa.string()})
    kind = pa.struct(
        {"numRecords": pa.int64(), "minValues": bounds, "maxValues": bounds, "nullCount": bounds}
    )
    texts = [row.pop("stats") for row in rows]
    bare = SCHEMA.field("add").type
    typed = pa.struct([*bare, pa.field("stats_parsed", kind)])
    told = [{**json.loads(text), "nullCount": {"n": 0, "v": "0"}} for text in texts]
    found = [{**row, "stats_parsed": one} for row, one in zip(rows, told, strict=True)]
    pq.write_table(pa.table({"add": pa.array(found, typed)}), sidecar)
    (manifest,) = root.glob("_delta_log/*.checkpoint.*.json")
    lines = [json.loads(line) for line in manifest.read_text().splitlines()]
    for line in lines:
        if "sidecar" in line:
            line["sidecar"]["sizeInBytes"] = sidecar.stat().st_size
    manifest.write_bytes(body(*lines))
    table = sw.open(root)
    table.append([{"n": 9, "v": "x"}])
    assert table.checkpoint() is True
    made = pq.read_table(root / "_delta_log" / f"{table.version:020}.checkpoint.parquet")
    kept = [json.loads(one["stats"]) for one in made.column("add").drop_null().to_pylist()]
    assert sorted((one["numRecords"], one["minValues"]["n"]) for one in kept) == [
        (1, 0),
        (1, 1),
        (1, 2),
        (1, 9),
    ]


def test_an_object_opened_for_reading_writes_once_the_feature_is_dropped(tmp_path):
    root = tmp_path / "t"
    sw.open(root, create=True).append([{"n": 1, "v": "x"}])
    listed = {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": ["icebergWriterCompatV1"]}
    (root / actions.commit_path(1)).write_bytes(body({"commitInfo": {}}, {"protocol": listed}))
    table = sw.open(root)
    with pytest.raises(UnsupportedTableError, match="icebergWriterCompatV1"):
        table.append([{"n": 9, "v": "x"}], key="late")
    dropped = {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}
    (root / actions.commit_path(2)).write_bytes(body({"commitInfo": {"operation": "DROP FEATURE"}}, dropped))
    assert table.append([{"n": 9, "v": "x"}], key="late").outcome == "committed"
    assert table.append([{"n": 9, "v": "x"}], key="late").outcome == "already_committed"
    assert table.checkpoint() is True
    assert sw.open(root).row_count() == 2


def test_a_writer_that_meets_the_feature_goes_on(tmp_path):
    """Unity turns it on for tables that are there."""
    root = tmp_path / "t"
    table = sw.open(root, create=True)
    table.append([{"n": 1}])
    (root / actions.commit_path(1)).write_bytes(
        body({"commitInfo": {"operation": "SET TBLPROPERTIES"}}, PROTOCOL)
    )
    table.append([{"n": 2}])
    assert sw.open(root).row_count() == 2
