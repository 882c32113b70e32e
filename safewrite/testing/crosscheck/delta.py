"""Makes a Delta table of the machine, and changes it as deltalake and plain hands do."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa

import safewrite as sw
from safewrite.testing.crosscheck import kinds
from safewrite.testing.crosscheck.features import check_commits, turn_on
from safewrite.testing.crosscheck.frames import frame
from safewrite.testing.crosscheck.home import Deed, files_in, ids, typed, upsert
from safewrite.testing.crosscheck.log_files import LogReader
from safewrite.testing.crosscheck.marks import mark_rows
from safewrite.testing.crosscheck.oracle import ID, ProgramOracle
from safewrite.testing.crosscheck.program import VECTORS, Column, Program, Step, Where
from safewrite.testing.crosscheck.promises import delta_promises
from safewrite.testing.crosscheck.readers import Found, Reader, Types, delta_readers

_ODD_ACTIONS: dict[str, dict[str, Any]] = {
    "txn": {"txn": {"appId": "other", "version": 5}},
    "domain": {"domainMetadata": {"domain": "mine", "configuration": '{"a":1}', "removed": False}},
}
"""Lines that other engines may leave in a log."""


@dataclass
class DeltaHome:
    """A Delta table at an address."""

    uri: str
    options: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Further settings of ``safewrite.open``, such as the arbiter."""
    features: tuple[str, ...] = ()
    """Those that the table has."""

    def open(self, program: Program, *, create: bool = False) -> Any:
        settings = self._given()
        if create:
            settings |= {"partition_by": program.partition_by, "properties": dict(program.properties)}
        return sw.open(self.uri, create=create, **settings)

    def _given(self) -> dict[str, Any]:
        return {"storage_options": dict(self.options) or None, **self.settings}

    def make(self, program: Program, oracle: ProgramOracle) -> None:
        if program.maker == "safewrite":
            sw.create(
                self.uri,
                kinds.schema(program.columns),
                partition_by=program.partition_by,
                properties=dict(program.properties),
                **self._given(),
            )
        else:
            self._made_by_deltalake(oracle, program.partition_by, dict(program.properties))
            oracle.foreign = True
        if program.features:
            turn_on(Path(self.uri), program.features, oracle)
            self.features = program.features

    def _made_by_deltalake(
        self, oracle: ProgramOracle, partition_by: tuple[str, ...], properties: dict[str, str] | None = None
    ) -> None:
        deltalake.write_deltalake(
            self.uri,
            frame("arrow", [], oracle.columns),
            mode="error",
            partition_by=list(partition_by) or None,
            configuration=properties or None,
            storage_options=dict(self.options) or None,
        )

    def readers(self, program: Program) -> dict[str, Reader]:
        readers = delta_readers(self.uri, self.options)
        if program.promises and "://" not in self.uri:
            readers |= delta_promises(self.uri, program)
        if program.features:
            return self._readers_of_features(readers, program)
        if (
            VECTORS in program.properties
        ):  # deltalake's dataset refuses such tables, and DuckDB is given bare files
            return {
                name: one
                for name, one in readers.items()
                if name in {"datafusion", "polars", "promises", "feed"}
            }
        return readers

    def _readers_of_features(self, readers: dict[str, Reader], program: Program) -> dict[str, Reader]:
        """Those that know the features; and one that looks at what commits must tell."""
        mapped = any(one.startswith("mapping") for one in program.features)
        marked = VECTORS in program.properties or "vectors" in program.features
        newer = mapped or {"v2 checkpoints", "materialized"} & {*program.features}
        able = (
            {"datafusion"} if newer else {"datafusion", "polars"}
        )  # others refuse such a table, or answer NULL for mapped columns
        if not (newer or marked):
            able |= (
                {"deltalake"} if "row tracking" in program.features else {"deltalake", "duckdb"}
            )  # files have ids

        def commits(types: Types, where: Where | None) -> Found:
            check_commits(Path(self.uri), self.features)
            return readers["datafusion"](types, where)

        found = {name: one for name, one in readers.items() if name in able} | {"commits": commits}
        by_log = LogReader(Path(self.uri))
        found["duckdb by the log"] = by_log
        return found | ({"feed by the log": by_log.fed} if "feed" in self.features else {})

    def files(self) -> frozenset[str] | None:
        return files_in(self.uri)

    def state(self) -> Any:
        return self._table().version()

    def _table(self) -> deltalake.DeltaTable:
        return deltalake.DeltaTable(self.uri, storage_options=dict(self.options) or None)

    # --- what others do -----------------------------------------------------------------------------
    def deeds(self) -> dict[tuple[str, str], Deed]:
        mine: dict[str, Deed] = {
            "append": self._append,
            "delete": self._delete,
            "merge": self._merge,
            "mark": self._mark,
            "compact": lambda step, oracle: self._tidy("compact"),
            "checkpoint": lambda step, oracle: self._tidy("checkpoint"),
            "vacuum": lambda step, oracle: self._tidy("vacuum"),
            "add column": self._add_column,
            "constrain": self._constrain,
            "set property": self._set_property,
            "restore": self._restore,
            "recreate": self._recreate,
            "odd action": self._odd_action,
        }
        if "commit times" in self.features:  # what is written by hand tells no time
            mine = {what: deed for what, deed in mine.items() if what not in ("mark", "odd action")}
        return {("deltalake", what): deed for what, deed in mine.items()}

    def _append(self, step: Step, oracle: ProgramOracle) -> None:
        rows = self._writable(step, oracle)
        deltalake.write_deltalake(self._table(), rows, mode="append")
        oracle.add(oracle.meant(step.rows))

    def _writable(self, step: Step, oracle: ProgramOracle) -> pa.Table:
        """The rows of a step.

        Raises:
            ValueError: deltalake 1.6.6 writes binary partition values that no reader reads, not even its own.
        """
        if oracle.computed:
            raise ValueError("the rows of a step have not all columns that the table has")
        parts = self._table().metadata().partition_columns
        if any(one.kind == "binary" for one in oracle.columns if one.name in parts):
            raise ValueError("deltalake does not write binary partition values")
        return typed(step.rows, oracle)

    def _delete(self, step: Step, oracle: ProgramOracle) -> None:
        self._table().delete(ids(step.detail))
        oracle.remove(step.detail)

    def _mark(self, step: Step, oracle: ProgramOracle) -> None:
        """Take rows away by deletion vectors, as Spark does."""
        if "://" in self.uri:
            raise ValueError("only logs in folders are written by hand")
        there = sorted(oracle.rows)
        oracle.remove(
            mark_rows(Path(self.uri), {there[number % len(there)] for number in step.detail if there})
        )

    def _merge(self, step: Step, oracle: ProgramOracle) -> None:
        merger = self._table().merge(
            self._writable(step, oracle),
            f"target.{ID} = source.{ID}",
            source_alias="source",
            target_alias="target",
        )
        merger.when_matched_update_all().when_not_matched_insert_all().execute()
        upsert(step.rows, oracle)

    def _tidy(self, what: str) -> None:
        table = self._table()
        match what:
            case "compact":
                table.optimize.compact()
            case "checkpoint":
                table.create_checkpoint()
            case "vacuum":
                table.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)

    def _add_column(self, step: Step, oracle: ProgramOracle) -> None:
        columns = [Column(*one) for one in step.detail]
        schema = deltalake.Schema.from_arrow(kinds.schema(tuple(columns)))
        self._table().alter.add_columns(schema.fields)
        oracle.widen(columns)

    def _constrain(self, step: Step, oracle: ProgramOracle) -> None:
        self._table().alter.add_constraint({"few": f"{ID} < {step.detail[0]}"})
        oracle.below = step.detail[0]

    def _set_property(self, step: Step, oracle: ProgramOracle) -> None:
        self._table().alter.set_table_properties(dict([step.detail]))

    def _restore(self, step: Step, oracle: ProgramOracle) -> None:
        earlier = oracle.earlier(step.detail[0])
        self._table().restore(earlier)
        oracle.take_back(earlier)

    def _recreate(self, step: Step, oracle: ProgramOracle) -> None:
        """Drop the table and create it again, with other columns and this many versions."""
        listed, versions = step.detail
        columns = tuple(Column(*one) for one in listed)
        self._drop()
        self.features = ()
        oracle.recreated(columns, {})
        self._made_by_deltalake(oracle, ())
        for number in range(versions):
            rows = step.rows[number : number + 1] if number < versions - 1 else step.rows[number:]
            deltalake.write_deltalake(self._table(), typed(rows, oracle), mode="append")
            oracle.add(oracle.meant(rows))

    def _drop(self) -> None:
        if "://" not in self.uri:
            shutil.rmtree(self.uri)
            return
        import boto3

        bucket, _, prefix = self.uri.partition("://")[2].partition("/")
        names = {
            "aws_access_key_id": "AWS_ACCESS_KEY_ID",
            "aws_secret_access_key": "AWS_SECRET_ACCESS_KEY",
            "endpoint_url": "AWS_ENDPOINT_URL",
            "region_name": "AWS_REGION",
        }
        given: dict[str, Any] = {
            name: self.options[own] for name, own in names.items() if own in self.options
        }
        boto3.resource("s3", **given).Bucket(bucket).objects.filter(Prefix=f"{prefix}/").delete()

    def _odd_action(self, step: Step, oracle: ProgramOracle) -> None:
        """A commit as a careless engine writes it."""
        table = self._table()
        if "://" in self.uri:
            raise ValueError("only logs in folders are written by hand")
        log = Path(self.uri) / "_delta_log" / f"{table.version() + 1:020d}.json"
        if log.exists():
            raise ValueError("there is a version that deltalake does not see")
        log.write_text(json.dumps(_ODD_ACTIONS[step.detail[0]]) + "\n")
