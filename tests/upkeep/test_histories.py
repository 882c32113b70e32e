"""Nothing goes that a version, tag, branch, position, running write or waiting write names, whatever came before (B7)."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pyiceberg.catalog.sql import SqlCatalog

import safewrite as sw
from safewrite.errors import CommitUnknownError
from safewrite.iceberg import expiry
from safewrite.iceberg.retention import KEEP
from safewrite.table.verbs import Table
from safewrite.testing.steps import At
from tests.changes.test_tables import COMMIT
from tests.integration.places import CrashError
from tests.test_cli import run_json
from tests.upkeep.test_clocks import clock

DAY_MS = 24 * 3600 * 1000
SCHEMA = pa.schema({"id": pa.int64(), "at": pa.int64()})
KEPT_DAYS = {"delta": 7, "iceberg": 11}
"""So long a version can be read; snapshots of a table that says so."""
PROPERTIES = {
    "delta": {
        "delta.enableDeletionVectors": "true",
        "delta.deletedFileRetentionDuration": "interval 0 seconds",
        "delta.logRetentionDuration": "interval 15 days",
    },
    "iceberg": {
        "write.merge.mode": "merge-on-read",
        "write.delete.mode": "merge-on-read",
        KEEP: str(KEPT_DAYS["iceberg"] * DAY_MS),
    },
}
WRITES = ("append", "delete", "overwrite", "change", "maintain", "checkpoint")
NAMES = ("tag", "branch", "staged")
EVENTS = (*WRITES, *NAMES, "position", "running", "waiting", *["upkeep"] * 3)
DAYS = (0, 0, 1, 3, 6)
Rows = list[tuple[int, int]]


class Past:
    """A table of one format whose past grows older, and what must be found in it: each version's rows, and what positions lead to."""

    def __init__(self, kind: str, folder: Path) -> None:
        self.kind, self.place = kind, folder
        self.catalog = SqlCatalog("local", uri=f"sqlite:///{folder}/c.db", warehouse=folder.as_uri())
        self.folder = folder / ("t" if kind == "delta" else "db/t")
        if kind == "delta":
            sw.create(str(self.folder), SCHEMA, properties=PROPERTIES[kind])
        else:
            sw.create("db.t", SCHEMA, catalog=self.catalog, create_namespace=True, properties=PROPERTIES[kind])  # fmt: skip
        self.now: Rows = []
        """The rows that the table has."""
        self.was: dict[int, Rows] = {}
        """Those of each version, or snapshot."""
        self.ages: dict[int, float] = {}
        self.names: dict[str, int] = {}
        """The snapshots of tags, and of another branch."""
        self.positions: list[int] = []
        """Versions up to which readers took all changes."""
        self.taken: dict[str, int] = {}
        """How far the source of each writer was taken."""
        self.waiting: dict[str, Rows] = {}
        """What waits for another's commit, by its key."""
        self.number = 0
        self.write("append")
        self.look()

    @property
    def options(self) -> list[str]:
        """How the command line is told of the catalog."""
        given = {"type": "sql", "uri": f"sqlite:///{self.place}/c.db", "warehouse": self.place.as_uri()}
        named = [f"{name}={value}" for name, value in given.items()]
        return ["--catalog", "local", *(part for one in named for part in ("--catalog-property", one))]

    def close(self) -> None:
        """Let the catalog go."""
        self.catalog.engine.dispose()

    def open(self, **more: Any) -> Any:
        """The table as another process has it."""
        if self.kind == "delta":
            return sw.open(str(self.folder), **more)
        return sw.open("db.t", catalog=self.catalog, **more)

    # --- what happens -----------------------------------------------------------------------------
    def happen(self, what: str, days: float) -> None:
        """Let days pass, and then a thing happen."""
        self.pass_(days)
        self.number += 1
        if what in WRITES:
            self.write(what)
        elif what == "running":
            kind = ("maintain", "change", "overwrite", "append")[self.number % 4]
            self.write(kind, meanwhile=partial(self.upkeep, min(days, 3)))
        else:
            {
                "tag": self.tag,
                "branch": self.branch,
                "staged": self.stage,
                "position": self.position,
                "waiting": self.wait,
                "upkeep": self.upkeep,
            }[what]()
        self.look(whole=what in ("maintain", "upkeep", "running"))

    def pass_(self, days: float) -> None:
        """So many days pass for all that is there, as the list of unused files has it too."""
        past_ms = int(days * DAY_MS)
        listed = self.folder / "_safewrite/unused/list.json"
        if listed.exists():
            found = json.loads(listed.read_text())
            files = [[path, size, at_ms - past_ms] for path, size, at_ms in found["files"]]
            at_ns = listed.stat().st_mtime_ns
            listed.write_text(json.dumps({**found, "files": files}))
            os.utime(listed, ns=(at_ns, at_ns))
        for path in (one for one in self.folder.rglob("*") if one.is_file()):
            os.utime(path, ns=(path.stat().st_mtime_ns - past_ms * 10**6,) * 2)
        self.ages = {version: age + days for version, age in self.ages.items()}

    def write(self, what: str, meanwhile: Callable[[], object] | None = None) -> None:
        """One call of a writer; ``meanwhile`` happens when its files are written and it is about to commit."""
        table = self.open()
        if meanwhile is not None:
            table.world = At(table.world, COMMIT[self.kind], "before", meanwhile)
        new = self.rows()
        if what == "append":
            table.append(_dicts(new), positions={"s": (self.taken.get("s"), self.number)})
            self.now, self.taken["s"] = [*self.now, *new], self.number
        elif what == "delete":
            table.delete(where=[("id", ">", self.number * 5)])
            self.now = [one for one in self.now if one[0] <= self.number * 5]
        elif what == "overwrite":
            table.overwrite(_dicts(new))
            self.now = new
        elif what == "change":
            new = [*new, *((number, self.number) for number, _ in self.now[:2])]
            table.apply_changes(_dicts(new), keys=["id"], sequence_by=["at"])
            self.now = [one for one in self.now if one[0] not in {number for number, _ in new}] + new
        elif what == "maintain":
            table.maintain()
        elif self.kind == "delta":
            table.checkpoint()

    def rows(self) -> Rows:
        """New rows."""
        return [(self.number * 10 + one, self.number) for one in range(3)]

    def tag(self) -> None:
        """Name the version."""
        if self.kind == "iceberg":
            name, at = f"t{self.number}", self.open().version
            self.catalog.load_table("db.t").manage_snapshots().create_tag(at, name).commit()
            self.names[name] = at

    def branch(self) -> None:
        """Write to another branch."""
        if self.kind == "iceberg":
            self.names["other"] = self.open(branch="other").append(_dicts(self.rows())).version

    def stage(self) -> None:
        """Write a snapshot that is to be audited: no branch leads to it."""
        if self.kind == "iceberg":
            rows = pa.Table.from_pylist(_dicts(self.rows()), SCHEMA)
            self.catalog.load_table("db.t").append(rows, {"wap.id": str(self.number)}, branch=None)

    def position(self) -> None:
        """A reader has taken all up to here."""
        self.positions.append(self.open().version)

    def wait(self) -> None:
        """A writer is killed while it waits for another's commit."""
        table = self.open(group="always", lease_s=0.02)
        table.world = At(table.world, "share.put_member", "after", _crash)
        key = f"waits-{self.number}"
        with pytest.raises(CrashError):
            table.append(_dicts(self.rows()), key=key)
        self.waiting[key] = self.rows()

    def repair(self) -> None:
        """What waits is committed, or nobody may commit it any more; no file of it is gone.

        Where snapshots that may have had it expired since, its writer decides it by the same call, and another repair tidies up.
        """
        self.pass_(0.01)  # its writer is given a minute
        steps = self.repaired()
        assert steps <= {("done", "key"), ("done", "no"), ("skipped", "snapshots")}, steps
        for key, rows in self.waiting.items():
            try:
                is_there = self.open().resolve(key) is not None
            except CommitUnknownError:
                assert ("skipped", "snapshots") in steps
                is_there = self.open().append(_dicts(rows), key=key).outcome == "committed"
                assert is_there
            self.now += rows if is_there else []
        if self.waiting:
            assert self.repaired() <= {("done", "it")}
        self.waiting = {}
        self.look()

    def repaired(self) -> set[tuple[str, str]]:
        """What a repair said of each write that waited: what it did, and the first word of why."""
        address = [str(self.folder)] if self.kind == "delta" else ["db.t", *self.options]
        _, done = run_json("repair", *address)
        steps = [one for one in done["steps"] if one["action"] == "finish"]
        return {(one["status"], one["detail"].partition(" ")[0]) for one in steps}

    def upkeep(self, days: float = 0.0) -> None:
        """After some days two runs of maintainers whose clocks are a day ahead or behind, each a day after the last."""
        self.pass_(days)
        for ahead in (self.number % 3 - 1, 1 - self.number % 3):
            with clock(ahead):
                self.removes()
            self.pass_(1.1)
        self.look()

    def put_orphan(self) -> Path:
        """What a killed writer left."""
        path = self.folder / ("" if self.kind == "delta" else "data") / f"orphan-{self.number}.parquet"
        path.write_bytes(b"of a writer that was killed")
        return path

    def removes(self) -> Any:
        """A run that removes what it may."""
        return self.open().maintain(budget_bytes=1, remove_unused=True)

    # --- what is there ----------------------------------------------------------------------------
    def look(self, *, whole: bool = True) -> None:
        """What is new is as it must be; where something may have gone, all that must be there is there."""
        found = self.there()
        for version in found - self.was.keys():
            self.was[version], self.ages[version] = self.rows_of(version), 0.0
        table = self.open()
        assert self.was[table.version] == sorted(self.now)
        assert table.positions() == self.taken
        if not whole:
            return
        for version in self.kept():
            assert version in found
            assert self.rows_of(version) == self.was[version]
        for version in self.positions:
            if self.ages[version] < KEPT_DAYS[self.kind]:
                assert self.changed_since(table, version) == sorted(self.now)

    def there(self) -> set[int]:
        """The versions that the table tells of."""
        if self.kind == "delta":
            names = (one.stem for one in (self.folder / "_delta_log").glob("0*.json"))
            return {int(one) for one in names if one.isdigit()}
        return {one.snapshot_id for one in self.catalog.load_table("db.t").snapshots()}

    def kept(self) -> set[int]:
        """The versions that must be there: young ones, what was current when their time began, and whatever a name leads to."""
        young = {version for version, age in self.ages.items() if age < KEPT_DAYS[self.kind]}
        if self.kind == "delta":
            return young | {max({*self.ages} - young, default=0)}
        metadata = self.catalog.load_table("db.t").metadata
        parents = {one.snapshot_id: one.parent_snapshot_id for one in metadata.snapshots}
        found = young | parents.keys()  # those that are there still are whole
        assert {name: metadata.refs[name].snapshot_id for name in self.names} == self.names
        at = self.names.get("other")
        while at is not None:
            found.add(at)
            at = parents.get(at)
        return found

    def rows_of(self, version: int) -> Rows:
        """A version's rows, by another library."""
        if self.kind == "delta":
            found = pl.read_delta(str(self.folder), version=version).to_arrow()
        else:
            found = self.catalog.load_table("db.t").scan(snapshot_id=version).to_arrow()
        return sorted((one["id"], one["at"]) for one in found.to_pylist())

    def changed_since(self, table: Table, version: int) -> Rows:
        """The rows of a version, and what came and went since."""
        found = [*self.was[version]]
        for one in table.changes_since(version).read().to_pylist():
            row = (one["id"], one["at"])
            if one["_change_type"] in ("delete", "update_preimage"):
                found.remove(row)
            else:
                found.append(row)
        return sorted(found)


@contextmanager
def past(kind: str, folder: Path) -> Iterator[Past]:
    """A table whose snapshots grow older, too."""
    was, found = expiry.expired, Past(kind, folder)

    def aged(snapshots: Any, *given: Any) -> Any:
        def older(one: Any) -> Any:
            days = found.ages.get(one.snapshot_id, 0.0)
            return one.model_copy(update={"timestamp_ms": one.timestamp_ms - int(days * DAY_MS)})

        return was([older(one) for one in snapshots], *given)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(expiry, "expired", aged)
        patch.setattr(expiry, "FEWEST", 1)
        yield found
    found.close()


History = list[tuple[str, int]]
ALL_OF_IT: History = [
    ("tag", 0), ("branch", 0), ("running", 3), ("position", 0), ("overwrite", 4), ("append", 0), ("checkpoint", 0),
    ("append", 1), ("upkeep", 0), ("waiting", 0), ("append", 6), ("upkeep", 3),
]  # fmt: skip
STAGED: History = [("staged", 3), ("upkeep", 3), ("upkeep", 1)]


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
@settings(max_examples=settings().max_examples // 12)
@given(history=st.lists(st.tuples(st.sampled_from(EVENTS), st.sampled_from(DAYS)), min_size=3, max_size=12))
@example(history=ALL_OF_IT)
@example(history=STAGED)
def test_nothing_goes_that_is_needed(
    kind: str, history: History, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Days pass, writers write, and maintainers put files together and remove what they may; and a file that nothing names goes."""
    with past(kind, tmp_path_factory.mktemp("t")) as table:
        for what, days in history:
            table.happen(what, days)
        table.repair()
        table.upkeep()
        orphan = table.put_orphan()
        for passed in (8, 1.1):
            table.pass_(passed)
            table.removes()
        table.look()
        assert not orphan.exists()


def _crash() -> None:
    raise CrashError


def _dicts(rows: Rows) -> list[dict[str, int]]:
    return [{"id": number, "at": at} for number, at in rows]
