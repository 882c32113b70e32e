"""An Iceberg table with a branch, its writers and publishers, and what people and services remove among their calls."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, cast

import pyarrow as pa
import pytest
import sqlalchemy as sa
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

import safewrite as sw
from safewrite.errors import CommitUnknownError, ConflictError, Kind, NotCommittedError
from safewrite.iceberg.catalog.world import CatalogWorld
from safewrite.iceberg.table import IcebergTable
from safewrite.protocol.effects import Effect, Outcome
from safewrite.stores import sql
from tests.stateful.nemesis import CLOCKS, Crash

SIDE = "audit"
Branch = Literal["main", "audit"]
Thing = Literal["snapshots", "metadata files", "ledger", "half the ledger", "branch properties", "queue"]
Ending = Literal["before", "after", "rival"]


class Yard:
    """A table in a SQL catalog; ``do`` and its like make a call, and compare each branch with what was acknowledged there."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory()
        root = Path(self._folder.name)
        self.catalog = SqlCatalog("local", uri=f"sqlite:///{root}/catalog.db", warehouse=root.as_uri())
        self.there: dict[str, set[int]] = {"main": set(), SIDE: set()}
        """The rows of each branch, one for each write: those of the last look, which all that follow must have."""
        self.keys: list[str] = []
        self.blind = False
        """Whether earlier table versions were removed, which tell what became of a write once its snapshot has expired."""
        self.keeps = True
        """Whether what remembers keys beyond their snapshots is whole; else those may not expire."""
        self.expired = False
        self.told: Counter[str] = Counter()
        self._handles: dict[str, IcebergTable] = {}
        sw.create("db.t", pa.schema({"id": pa.int64()}), catalog=self.catalog, create_namespace=True)
        self.append("main", 0)
        self._handle(SIDE)
        self.there[SIDE] = {0}

    def close(self) -> None:
        """Remove everything."""
        self.catalog.engine.dispose()
        self._folder.cleanup()

    # --- calls ------------------------------------------------------------------------------------
    def append(self, branch: Branch, number: int, ends: tuple[Ending, int] | None = None) -> str:
        """Append the row of a number under its key, for the first time or again."""
        number = min(number, len(self.keys))
        if number == len(self.keys):
            self.keys.append(f"event-{number}")
        had, told = number in self.there[branch], ""
        try:
            with self._ending(ends):
                told = self._handle(branch).append([{"id": number}], key=self.keys[number]).outcome.value
        except Crash:
            told = "crashed"
            self._handles.clear()
        except CommitUnknownError:
            assert self.blind, f"{self.keys[number]} on {branch} is not decided"
            told = "unknown"
        except NotCommittedError as error:
            told = self._again(error, branch)
        found = self._look(branch)
        assert found in (self.there[branch], self.there[branch] | {number}), f"{branch} after {told}"
        assert told not in ("committed", "already_committed") or number in found, (
            "acknowledged, and not there"
        )
        assert told != "committed" or not had, "a repeat was committed again"
        assert told != "already_committed" or had or ends, "called a repeat, and was not there"
        self.there[branch] = found
        self.told[told] += 1
        return told

    def publish(self, ends: tuple[Ending, int] | None = None) -> str:
        """Fast-forward the main branch to the other one."""
        told, before = "", self.there["main"]
        try:
            with self._ending(ends):
                handle = self._handle(SIDE)
                told = handle.fast_forward().outcome.value
        except Crash:
            told = "crashed"
            self._handles.clear()
        except NotCommittedError as error:
            told = self._again(error, SIDE)
        found = self._look("main")
        now = self.there["main"]  # with what a rival wrote meanwhile
        allowed = (now, now | self.there[SIDE], before | self.there[SIDE])
        assert found in allowed, f"main after {told}"
        assert found >= now, f"main lost rows after {told}"
        assert told not in ("committed", "already_committed") or found >= self.there[SIDE]
        self.there["main"] = found
        self.told[f"publish: {told}"] += 1
        return told

    def make_again(self) -> None:
        """Drop the branch and open it again, which begins it at the main branch."""
        if SIDE in self._table().refs():
            self._table().manage_snapshots().remove_branch(SIDE).commit()
        self._handles.pop(SIDE, None)
        self._handle(SIDE)
        self.there[SIDE] = set(self.there["main"])

    # --- what is removed --------------------------------------------------------------------------
    def remove(self, thing: Thing) -> None:
        """Remove a thing, as by hand or by a service, between two calls."""
        table = self._table()
        match thing:
            case "snapshots" if self.keeps:
                named = {one.snapshot_id for one in table.refs().values()}
                old = [one.snapshot_id for one in table.snapshots() if one.snapshot_id not in named]
                if old:
                    table.maintenance.expire_snapshots().by_ids(old).commit()
                    self.expired = True
            case "metadata files":
                for entry in table.metadata.metadata_log:
                    self.blind = True
                    Path(entry.metadata_file.removeprefix("file://")).unlink(missing_ok=True)
            case "ledger" | "half the ledger" if not self.expired:
                self.keeps = False
                gone = sa.delete(sql.ledger_table)
                if thing != "ledger":
                    gone = gone.where(sql.ledger_table.c.key.in_(self.keys[::2]))
                self._run(gone)
            case "branch properties" if not self.expired:
                self.keeps = False
                names = [name for name in table.properties if name.startswith("safewrite.branch.")]
                with table.transaction() as change:
                    change.remove_properties(*names)
                self._handles.clear()
            case "queue":
                self._run(sa.delete(sql.queue_table))
        for branch in ("main", SIDE):
            assert self._look(branch) == self.there[branch]

    def decide_all(self) -> None:
        """Each key is there once on both branches after one call more."""
        for branch in (SIDE, "main"):
            for number in range(len(self.keys)):
                self.append(branch, number)
                assert number in self.there[branch] or self.blind

    # --- small helpers ----------------------------------------------------------------------------
    def _again(self, error: NotCommittedError, branch: str) -> str:
        """The word for a refusal: that of who holds a branch which others made again, or moved."""
        assert isinstance(error, ConflictError), repr(error)
        assert error.kind in (Kind.BRANCH_CHANGED, Kind.CONFLICT), repr(error)
        self._handles.pop(branch, None)
        return error.kind.value

    @contextmanager
    def _ending(self, ends: tuple[Ending, int] | None) -> Iterator[None]:
        """End the process of a call before or after its effect of that number, or let another writer of main come first."""
        if ends is None:
            yield
            return
        how, at = ends
        perform, count = CatalogWorld.perform, 0

        def bent(world: CatalogWorld, effect: Effect) -> Outcome:
            nonlocal count
            count += not isinstance(effect, CLOCKS)
            if count != at + 1 or isinstance(effect, CLOCKS):
                return perform(world, effect)
            count += 1
            if how == "after":
                perform(world, effect)
            if how != "rival":
                raise Crash
            patched.setattr(CatalogWorld, "perform", perform)
            sw.open("db.t", catalog=self.catalog).append(
                [{"id": len(self.keys)}], key=f"event-{len(self.keys)}"
            )
            self.there["main"] = self.there["main"] | {len(self.keys)}
            self.keys.append(f"event-{len(self.keys)}")
            return perform(world, effect)

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(CatalogWorld, "perform", bent)
            yield

    def _handle(self, branch: str) -> IcebergTable:
        if branch not in self._handles:
            given: dict[str, Any] = {} if branch == "main" else {"branch": branch}
            self._handles[branch] = cast("IcebergTable", sw.open("db.t", catalog=self.catalog, **given))
        return self._handles[branch]

    def _table(self) -> Table:
        return self.catalog.load_table("db.t")

    def _look(self, branch: str) -> set[int]:
        table = self._table()
        scan = table.scan(snapshot_id=table.refs()[branch].snapshot_id)
        counts = Counter(cast("list[int]", scan.to_arrow()["id"].to_pylist()))
        assert set(counts.values()) <= {1}, f"doubled on {branch}: {counts}"
        return set(counts)

    def _run(self, statement: sa.Delete) -> None:
        with self.catalog.engine.begin() as connection:
            connection.execute(statement)
