"""Makes an Iceberg table of the machine, and changes it as PyIceberg does."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import IcebergTables
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadataV2
from pyiceberg.table.snapshots import MetadataLogEntry
from pyiceberg.transforms import BucketTransform, IdentityTransform

import safewrite as sw
from safewrite.iceberg.catalog.loading import load
from safewrite.iceberg.catalog.metadata_v3 import VERSION, dumped, upgraded
from safewrite.testing.crosscheck import conditions, kinds, known
from safewrite.testing.crosscheck.home import Deed, files_in, typed, upsert
from safewrite.testing.crosscheck.oracle import ID, ProgramOracle
from safewrite.testing.crosscheck.program import Column, Program, Step, Where
from safewrite.testing.crosscheck.promises import iceberg_promises
from safewrite.testing.crosscheck.readers import Reader, iceberg_readers


@dataclass
class IcebergHome:
    """An Iceberg table in a catalog; ``load`` gives PyIceberg's catalog, a new one for each process."""

    catalog: Callable[[], Catalog]
    name: str
    properties: dict[str, str] | None = None
    """How safewrite reaches the catalog, where objects are sent to other processes."""
    settings: dict[str, Any] = field(default_factory=dict)
    """Further settings of ``safewrite.open``, such as a lock table that remembers keys past the expiry of snapshots."""

    def open(self, program: Program, *, create: bool = False) -> Any:
        made: dict[str, Any] = {}
        if create:
            made = {
                "partition_by": program.partition_by,
                "properties": {"format-version": str(program.version), **dict(program.properties)},
            }
        where = self.properties or self.catalog()
        return sw.open(self.name, catalog=where, create=create, **self.settings, **made)

    def make(self, program: Program, oracle: ProgramOracle) -> None:
        if program.maker == "safewrite":
            sw.create(
                self.name,
                kinds.schema(program.columns),
                catalog=self.properties or self.catalog(),
                partition_by=program.partition_by,
                properties={"format-version": str(program.version), **dict(program.properties)},
                **self.settings,
            )
        else:
            made = min(program.version, VERSION - 1)
            self._made_by_pyiceberg(
                oracle,
                program.partition_by,
                {"format-version": str(made), **dict(program.properties)},
            )
            if program.version != made:
                self._to_version_3()
            oracle.foreign = True

    def _made_by_pyiceberg(
        self, oracle: ProgramOracle, partition_by: tuple[str, ...], properties: dict[str, str]
    ) -> None:
        catalog = self.catalog()
        catalog.create_namespace_if_not_exists(self.name.rpartition(".")[0])
        table = catalog.create_table(self.name, kinds.schema(oracle.columns), properties=properties)
        if partition_by:
            with table.update_spec() as update:
                for name in partition_by:
                    update.add_field(name, IdentityTransform())

    def readers(self, program: Program) -> dict[str, Reader]:
        if program.promises and self.files() is not None:
            return iceberg_readers(self._table) | iceberg_promises(self._table, program)
        return iceberg_readers(self._table)

    def files(self) -> frozenset[str] | None:
        return files_in((self.properties or {}).get("warehouse", "s3://").removeprefix("file://"))

    def state(self) -> Any:
        now = self._table().current_snapshot()
        return None if now is None else now.snapshot_id

    def _table(self) -> Table:
        """PyIceberg's own; of format version 3 from safewrite's catalog, for PyIceberg's writes no such metadata."""
        table = self.catalog().load_table(self.name)
        if table.metadata.format_version < VERSION or self.properties is None:
            return table
        return self._own.load_table(self.name)

    @cached_property
    def _own(self) -> Catalog:
        return load(**self.properties or {})

    # --- what others do -----------------------------------------------------------------------------
    def deeds(self) -> dict[tuple[str, str], Deed]:
        mine: dict[str, Deed] = {
            "append": self._append,
            "delete": self._delete,
            "upsert": self._upsert,
            "add column": self._add_column,
            "rename column": self._rename_column,
            "drop column": self._drop_column,
            "swap columns": self._swap_columns,
            "make column again": self._make_column_again,
            "drop partition": self._drop_partition,
            "add bucket": self._add_bucket,
            "expire": self._expire,
            "rollback": self._rollback,
            "upgrade": self._upgrade,
            "set property": self._set_property,
            "recreate": self._recreate,
        }
        return {("pyiceberg", what): deed for what, deed in mine.items()}

    def _append(self, step: Step, oracle: ProgramOracle) -> None:
        _refuse_lists_of_structs(oracle)
        self._table().append(typed(step.rows, oracle))
        oracle.add(oracle.meant(step.rows))

    def _delete(self, step: Step, oracle: ProgramOracle) -> None:
        _refuse_lists_of_structs(oracle)
        self._table().delete(conditions.iceberg(Where("in", ID, step.detail)))
        oracle.remove(step.detail)

    def _upsert(self, step: Step, oracle: ProgramOracle) -> None:
        _refuse_lists_of_structs(oracle)
        self._table().upsert(typed(step.rows, oracle), join_cols=[ID])
        upsert(step.rows, oracle)

    def _add_column(self, step: Step, oracle: ProgramOracle) -> None:
        columns = [Column(*one) for one in step.detail]
        with self._table().update_schema() as update:
            update.union_by_name(kinds.schema((*oracle.columns, *columns)))
        oracle.widen(columns)

    def _rename_column(self, step: Step, oracle: ProgramOracle) -> None:
        old, new = step.detail
        with self._table().update_schema() as update:
            update.rename_column(old, new)
        oracle.rename(old, new)

    def _drop_column(self, step: Step, oracle: ProgramOracle) -> None:
        with self._table().update_schema() as update:
            update.delete_column(step.detail[0])
        oracle.drop(step.detail[0])

    def _swap_columns(self, step: Step, oracle: ProgramOracle) -> None:
        one, other = step.detail
        for old, new in ((one, "swapping"), (other, one), ("swapping", other)):
            with self._table().update_schema() as update:
                update.rename_column(old, new)
            oracle.rename(old, new)

    def _make_column_again(self, step: Step, oracle: ProgramOracle) -> None:
        """Drop a column, and add another of its name and kind."""
        name, kind = step.detail
        with self._table().update_schema() as update:
            update.delete_column(name)
        oracle.drop(name)
        with self._table().update_schema() as update:
            update.union_by_name(kinds.schema((*oracle.columns, Column(name, kind))))
        oracle.widen([Column(name, kind)])

    def _drop_partition(self, step: Step, oracle: ProgramOracle) -> None:
        with self._table().update_spec() as update:
            update.remove_field(step.detail[0])

    def _add_bucket(self, step: Step, oracle: ProgramOracle) -> None:
        with self._table().update_spec() as update:
            update.add_field(step.detail[0], BucketTransform(3))

    def _expire(self, step: Step, oracle: ProgramOracle) -> None:
        table = self._table()
        now = table.current_snapshot()
        old = [
            one.snapshot_id for one in table.snapshots() if now is None or one.snapshot_id != now.snapshot_id
        ]
        if not old:
            raise ValueError("nothing to expire")
        table.maintenance.expire_snapshots().by_ids(old).commit()
        oracle.states = {state: known for state, known in oracle.states.items() if state not in old}

    def _rollback(self, step: Step, oracle: ProgramOracle) -> None:
        table = self._table()
        target = oracle.earlier(step.detail[0], [entry.snapshot_id for entry in table.history()])
        table.manage_snapshots().rollback_to_snapshot(target).commit()
        oracle.take_back(target)

    def _upgrade(self, step: Step, oracle: ProgramOracle) -> None:
        (version,) = step.detail
        if version == VERSION:
            self._to_version_3()
            return
        with self._table().transaction() as transaction:
            transaction.upgrade_table_version(version)

    def _to_version_3(self) -> None:
        """Upgrade in place as Spark does: no snapshot comes, and no row has an id yet."""
        catalog: Any = self.catalog()
        before = catalog.load_table(self.name)
        if not isinstance(before.metadata, TableMetadataV2) or not hasattr(catalog, "engine"):
            raise ValueError("only tables of version 2 in SQL catalogs are upgraded here")
        entry = {"metadata-file": before.metadata_location, "timestamp-ms": before.metadata.last_updated_ms}
        log = MetadataLogEntry.model_validate(entry)
        logged = {"metadata_log": [*before.metadata.metadata_log, log]}
        number = catalog._parse_metadata_version(before.metadata_location) + 1  # noqa: SLF001 - as PyIceberg does
        location = before.location_provider().new_table_metadata_file_location(number)
        with before.io.new_output(location).create() as stream:
            stream.write(dumped(upgraded(before.metadata.model_copy(update=logged))).encode())
        table: Any = IcebergTables.__table__
        named = (table.c.metadata_location == before.metadata_location) & (
            table.c.table_name == self.name.rpartition(".")[2]
        )
        with catalog.engine.begin() as connection:
            connection.execute(table.update().where(named).values(metadata_location=location))

    def _set_property(self, step: Step, oracle: ProgramOracle) -> None:
        with self._table().transaction() as transaction:
            transaction.set_properties(dict([step.detail]))

    def _recreate(self, step: Step, oracle: ProgramOracle) -> None:
        """Drop the table and create it again, with other columns."""
        listed, versions = step.detail
        _refuse_lists_of_structs(oracle)
        self.catalog().drop_table(self.name)
        oracle.recreated(tuple(Column(*one) for one in listed), {})
        self._made_by_pyiceberg(oracle, (), {"format-version": "2"})
        for number in range(versions):
            rows = step.rows[number : number + 1] if number < versions - 1 else step.rows[number:]
            self._table().append(typed(rows, oracle))
            oracle.add(oracle.meant(rows))


def _refuse_lists_of_structs(oracle: ProgramOracle) -> None:
    """Refuse lists of structs: PyIceberg 0.12.0 writes a NULL one as empty, and so alters what it rewrites."""
    if any(known.holds_structs(column.kind) for column in oracle.columns):
        raise ValueError("PyIceberg would alter these columns")
