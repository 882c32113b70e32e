"""T3-S2: a table's metadata leads no write out of the table, however it spells a path, whatever names it, by every verb."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import safewrite as sw
from safewrite.delta.maintenance.doctor import examine
from safewrite.delta.maintenance.inspection import inspect_table
from safewrite.protocol import effects as fx
from safewrite.stores.local import LocalObjects, SqliteLedger
from safewrite.stores.table_folder import climbs, is_inside, leads_astray
from safewrite.stores.world import World

ROWS = pa.table({"id": [1, 2, 3], "v": ["a", "b", "c"]})
MORE = pa.table({"id": [7], "v": ["z"]})

SPELLINGS = {
    "plain": "../secret/data.parquet",
    "encoded dots": "%2e%2e/secret/data.parquet",
    "encoded slash": "..%2Fsecret%2Fdata.parquet",
    "encoded twice": "%252e%252e/secret/data.parquet",
    "behind a folder": "inner/../../secret/data.parquet",
    "absolute": "{root}/secret/data.parquet",
    "absolute, encoded": "%2F{root}/secret/data.parquet",
    "absolute, climbing through the table": "{root}/table/../secret/data.parquet",
    "an address": "file://{root}/secret/data.parquet",
    "an encoded address": "file%3A//{root}/secret/data.parquet",
    "a Hadoop address": "file:{root}/secret/data.parquet",
}
NEW = pa.table({"id": [2], "v": ["new"]})
VERBS: dict[str, Callable[[Any], object]] = {
    "delete": lambda table: table.delete("id = 2"),
    "overwrite": lambda table: table.overwrite(NEW, where="id = 2"),
    "apply_changes": lambda table: table.apply_changes(NEW, keys=["id"], sequence_by="v"),
}


class Place:
    """A table, and beside it a folder of somebody else's with a file of the same columns."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.secret = root / "secret"
        (root / "table" / "inner").mkdir(parents=True)
        self.secret.mkdir()
        pq.write_table(ROWS, self.secret / "data.parquet")
        self.before = self.foreign()

    def foreign(self) -> dict[str, bytes]:
        return {path.name: hashlib.md5(path.read_bytes()).digest() for path in self.secret.iterdir()}

    def spelled(self, text: str) -> str:
        return text.replace("{root}", str(self.root))

    def add(self, path: str, **more: Any) -> dict[str, Any]:
        size = (self.secret / "data.parquet").stat().st_size
        stats = json.dumps({"numRecords": ROWS.num_rows})
        common = {
            "partitionValues": {},
            "size": size,
            "modificationTime": 1,
            "dataChange": True,
            "stats": stats,
        }
        return {"add": {"path": path, **common, **more}}

    def delta(self, *actions: dict[str, Any]) -> Any:
        """A Delta table with one row, whose last commit is made by hand."""
        table = sw.create(self.root / "table", ROWS.schema)
        table.append(MORE)
        log = self.root / "table" / "_delta_log" / f"{table.version + 1:020}.json"
        lines = [{"commitInfo": {"timestamp": 1, "operation": "WRITE"}}, *actions]
        log.write_text("".join(json.dumps(line) + "\n" for line in lines))
        return sw.open(self.root / "table")

    def check_untouched(self) -> None:
        assert self.foreign() == self.before


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


@pytest.mark.sweep("apply_changes")
@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("spelling", SPELLINGS)
def test_a_file_of_the_log_that_lies_elsewhere_is_neither_read_nor_rewritten(
    place: Place, spelling: str, verb: str
) -> None:
    """T3-S2: such a write was committed, with the rows of the foreign file and new files in its folder."""
    table = place.delta(place.add(place.spelled(SPELLINGS[spelling])))
    before = table.version
    with pytest.raises(sw.UnsupportedTableError, match=r"outside|leads out"):
        VERBS[verb](table)
    place.check_untouched()
    assert sw.open(place.root / "table").version == before


def test_rows_are_appended_to_such_a_table_without_a_look_at_the_foreign_file(place: Place) -> None:
    table = place.delta(place.add(SPELLINGS["plain"]))
    table.append(MORE)
    place.check_untouched()


def test_the_doctor_says_which_file_it_is(place: Place) -> None:
    place.delta(place.add(SPELLINGS["encoded dots"]))
    found = examine(inspect_table(str(place.root / "table")), environment={})
    told = next(one for one in found if one.code == "unsupported_files")
    assert "%2e%2e/secret" in told.message or "../secret" in told.message


def test_a_name_that_was_taken_out_of_the_log_does_no_harm(place: Place) -> None:
    table = place.delta(
        place.add(SPELLINGS["plain"]), {"remove": {"path": SPELLINGS["plain"], "dataChange": True}}
    )
    # Within one commit the add wins; in the next one the remove does.
    log = place.root / "table" / "_delta_log" / f"{table.version + 1:020}.json"
    log.write_text(json.dumps({"remove": {"path": SPELLINGS["plain"], "dataChange": True}}) + "\n")
    assert sw.open(place.root / "table").delete("id = 7").outcome == "committed"
    place.check_untouched()


@pytest.mark.parametrize("name", ["u", "p"])
def test_a_deletion_vector_that_lies_elsewhere_is_not_read(place: Place, name: str) -> None:
    from safewrite.changes.meaning.row_vectors import VectorError
    from safewrite.delta.data.vectors import path_of

    root = str(place.root / "table")
    text = "../../secret/" + "a" * 20 if name == "u" else f"file://{root}/../secret/x.bin"
    for spelled in (text, text.replace("..", "%2e%2e")):
        with pytest.raises(VectorError, match="outside"):
            path_of({"storageType": name, "pathOrInlineDv": spelled}, root)
    vector = {"storageType": name, "pathOrInlineDv": text, "offset": 1, "sizeInBytes": 4, "cardinality": 1}
    pq.write_table(ROWS, place.root / "table" / "own.parquet")
    table = place.delta(
        place.add(
            "own.parquet", deletionVector=vector, size=(place.root / "table" / "own.parquet").stat().st_size
        )
    )
    with pytest.raises(sw.SafewriteError, match="outside"):
        table.delete("id = 2")


def test_a_commit_that_names_its_members_elsewhere_is_not_followed(place: Place) -> None:
    """The list of a commit's writes stands in a file that the commit names."""
    (place.secret / "members.json").write_text("[]")
    place.before = place.foreign()
    table = place.delta()
    table.append(MORE, key="a")
    log = place.root / "table" / "_delta_log" / f"{table.version:020}.json"
    info = {
        "safewrite": {"members": {"path": "../secret/members.json", "md5": hashlib.md5(b"[]").hexdigest()}}
    }
    newer = log.with_name(f"{table.version + 1:020}.json")
    newer.write_text(json.dumps({"commitInfo": {"timestamp": 2, **info}}) + "\n")
    asked: list[str] = []
    opened = sw.open(place.root / "table")
    try:
        opened.append(MORE, key="b")
        opened.resolve("a")
    except sw.SafewriteError as error:
        asked.append(str(error))
    place.check_untouched()


@pytest.mark.parametrize(
    "effect",
    [
        fx.Get("../secret/data.parquet"),
        fx.Get("%2e%2e/secret/data.parquet"),
        fx.Get("inner/../../secret/data.parquet"),
        fx.GetRange("../secret/data.parquet", 0, 4),
        fx.GetTail("../secret/data.parquet", 4),
        fx.Put("../secret/x", b"x"),
        fx.PutIfAbsent("../secret/x", b"x"),
        fx.Delete("../secret/data.parquet"),
        fx.Get("a\0b"),
    ],
)
def test_no_request_leaves_the_table_whoever_asks(place: Place, effect: fx.Effect) -> None:
    """The last door: stores see no path that leads out, whichever part of the metadata named it."""
    folder = place.root / "table"
    world = World(LocalObjects(folder), ledger=SqliteLedger(folder / "ledger"))
    outcome = world.perform(effect)
    assert isinstance(outcome, fx.Failed)
    assert "leads out" in outcome.detail
    absolute = world.perform(fx.Delete(str(place.secret / "data.parquet")))
    assert isinstance(absolute, fx.Failed)
    place.check_untouched()


@pytest.mark.parametrize(
    "path",
    [
        "part-1.parquet",
        "k=a%2Fb/x.parquet",
        "k=..%2F../x..parquet"[:9] + "x",
        "a..b/c",
        "...",
        "k=a:b/x.parquet",
        "t%3Ax.parquet",
        "k=%25/x",
        "k=a%252F..%252Fb/x.parquet",
        "k=http%253A%252F%252Fhost%252F/x",
        "k=%2500/x",
    ],
)
def test_odd_names_within_the_table_are_its_own(path: str) -> None:
    assert is_inside(path)
    assert not climbs(path)


# --- Iceberg ----------------------------------------------------------------------------------------------
def _iceberg(place: Place, location: str) -> tuple[Any, dict[str, str]]:
    settings = {
        "type": "sql",
        "uri": f"sqlite:///{place.root}/catalog.db",
        "warehouse": f"file://{place.root}/warehouse",
    }
    sw.create("db.t", ROWS.schema, catalog=settings).append(MORE)
    from pyiceberg.catalog import load_catalog

    table = load_catalog("default", **settings).load_table("db.t")
    table.add_files([location])
    return sw.open("db.t", catalog=settings), settings


@pytest.mark.sweep("overwrite")
@pytest.mark.parametrize("verb", VERBS)
def test_an_iceberg_file_whose_name_climbs_is_neither_read_nor_rewritten(place: Place, verb: str) -> None:
    """T3-S2, the twin: what Iceberg's metadata can name on this machine."""
    table, _ = _iceberg(place, f"file://{place.root}/table/../secret/data.parquet")
    before = table.version
    with pytest.raises(sw.SafewriteError, match="leads out") as caught:
        VERBS[verb](table)
    assert not isinstance(caught.value, sw.CommitUnknownError)
    place.check_untouched()
    assert table.version == before


def test_an_iceberg_file_that_was_added_from_elsewhere_by_its_plain_name_is_read(place: Place) -> None:
    """Iceberg's ``add_files`` leaves files where they are; safewrite reads such a file and never changes it."""
    table, settings = _iceberg(place, f"file://{place.root}/secret/data.parquet")
    table.delete("id = 2")
    place.check_untouched()
    from pyiceberg.catalog import load_catalog

    rows = load_catalog("default", **settings).load_table("db.t").scan().to_arrow()
    assert sorted(rows["id"].to_pylist()) == [1, 3, 7]


def test_a_table_on_s3_names_no_file_of_this_machine() -> None:
    assert leads_astray("file:///etc/x.parquet", "s3://lake/t")
    assert leads_astray("/etc/x.parquet", "s3://lake/t")
    assert leads_astray("s3://lake/t/../u/x.parquet", "s3://lake/t")
    assert not leads_astray("s3://other/x.parquet", "s3://lake/t")
    assert not leads_astray("file:///lake/x.parquet", "/lake/t")


def forgetful(root: Path) -> sw.Table:
    """An Iceberg table that keeps one metadata file of before."""
    settings = {"type": "sql", "uri": f"sqlite:///{root}/catalog.db", "warehouse": f"file://{root}/w"}
    properties = {
        "write.metadata.delete-after-commit.enabled": "true",
        "write.metadata.previous-versions-max": "1",
    }
    return sw.create("db.t", ROWS.schema, catalog=settings, properties=properties)


@pytest.mark.long
def test_old_metadata_that_lies_elsewhere_is_not_deleted(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    """T3-S2: a log of metadata files made the commit delete any file that it named."""
    from types import SimpleNamespace as Made

    from safewrite.iceberg.connect import Connection

    table = forgetful(Path(place.root))
    for _ in range(4):
        table.append(MORE)
    folder = Path(f"{place.root}/w/db/t/metadata")
    kept = len(list(folder.glob("*.metadata.json")))
    assert kept == 2, "old files of the table's own go"
    catalog = table._format.connection.catalog
    now = catalog.load_table("db.t")
    entry = Made(metadata_file=f"file://{place.secret}/data.parquet")
    old = Made(location=now.location, metadata=Made(metadata_log=[entry]), io=now.io)
    connection: Connection = table._format.connection
    connection.drop_old_metadata(old, now.metadata)  # type: ignore[arg-type]
    place.check_untouched()
    assert "are kept" in caplog.text


def test_old_metadata_goes_where_the_tables_location_ends_with_a_slash(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    from pyiceberg.table.update import SetLocationUpdate

    table = forgetful(tmp_path)
    format_ = table._format
    with format_.connection.catalog.load_table("db.t").transaction() as change:
        change._apply((SetLocationUpdate(location=f"file://{tmp_path}/w/db/t/"),))
    kept = []
    for _ in range(4):
        table.append(MORE)
        kept.append(len(list((tmp_path / "w/db/t/metadata").glob("*.metadata.json"))))
    assert kept[-1] == kept[0], "old files of the table's own go"
    assert "are kept" not in caplog.text
