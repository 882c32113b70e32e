"""Opens, creates and widens the tables of a job; each once in a process."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

import safewrite as sw
from safewrite.cdc.config.job import Config
from safewrite.cdc.config.own_columns import OwnNames
from safewrite.cdc.config.table_config import TargetTable
from safewrite.intake.renamed_columns import renamed
from safewrite.intake.reporting import Listener
from safewrite.intake.tables import TableFormat
from safewrite.values.widening import with_fields

log = logging.getLogger("safewrite")

KEYS = "cdc.keys"
"""The property of a table that the job created: its key columns, as JSON."""
OWN_NAMES = "cdc.own_names"
"""The property of a table that the job created: the names of its own columns that were chosen, as JSON."""


COPIED_BYTES, COPIED_PER_CHANGE = 64 * 2**20, 10 * 2**10
"""A batch that copies at least this many bytes, and this many for each change, is warned of."""


class TargetTables:
    """The tables of a job by name."""

    def __init__(self, config: Config, *, on_event: Listener | None = None) -> None:
        self._config = config
        self._on_event = on_event
        self._open: dict[str, sw.Table] = {}
        self._warned: set[str] = set()
        self._lock = threading.Lock()

    def find(self, table: TargetTable) -> sw.Table | None:
        """A table as it is now; None if there is none."""
        known = self.seen(table)
        if known is not None:
            try:
                return known.refresh()
            except sw.SafewriteError as error:
                self._forget(table, error)
        return self._opened(table)

    def look(self, table: TargetTable) -> sw.Table | None:
        """A table as it is now, for who commits nothing: a branch that is not there is not made, and the table is as on main."""
        if table.branch is not None and self.seen(table) is None:
            main = self._found(table.model_copy(update={"branch": None}))
            if main is None or not has_branch(main, table.branch):
                return main
        return self.find(table)

    def position(self, table: TargetTable) -> tuple[sw.Table | None, dict[str, int]]:
        """A table as it is now, and how far each source was taken into it; both of one look at it."""
        known = self.seen(table)
        if known is not None:
            try:
                return known, known.positions()
            except sw.SafewriteError as error:
                self._forget(table, error)
        found = self._opened(table)
        return found, {} if found is None else found.positions()

    def seen(self, table: TargetTable) -> sw.Table | None:
        """A table as it was seen last; None if none was seen.  A commit to it refuses a table that was created again since."""
        with self._lock:
            return self._open.get(table.name)

    def _forget(self, table: TargetTable, error: sw.SafewriteError) -> None:
        """Forget a table that was dropped, or dropped and created again; another error is raised."""
        if not isinstance(error, sw.TableNotFoundError) and error.kind is not sw.Kind.TABLE_REPLACED:
            raise error
        with self._lock:
            self._open.pop(table.name, None)

    def _opened(self, table: TargetTable) -> sw.Table | None:
        found = self._found(table)
        return None if found is None else self._keep(table, found)

    def _found(self, table: TargetTable) -> sw.Table | None:
        try:
            found: sw.Table = sw.open(self._address(table), **self._opening(table))
        except sw.TableNotFoundError:
            return None
        return found.check_writable()

    def other_format(self, table: TargetTable) -> sw.Table | None:
        """The table of this name in the other format, as where the configuration names another one than before; None if there is none."""
        config = self._config
        if (config.warehouse if table.format == "iceberg" else config.catalog) is None:
            return None
        form: TableFormat = "delta" if table.format == "iceberg" else "iceberg"
        other = table.model_copy(update={"format": form, "location": None, "branch": None})
        try:
            found: sw.Table = sw.open(self._address(other), **self._opening(other))
        except sw.SafewriteError:
            return None
        return found

    def create(self, table: TargetTable, keys: Sequence[str], fields: Sequence[pa.Field]) -> sw.Table:
        """A new table; one that another job made meanwhile is taken as it is."""
        properties = {**properties_of(table), KEYS: json.dumps(list(keys))}
        if table.own_names:
            properties[OWN_NAMES] = json.dumps(table.own_names)
        if table.format_version is not None:
            properties["format-version"] = str(table.format_version)
        made = self._config.created(
            self._address(table), schema_of(table, keys, fields), table.format, self._config.opening(table.format, self._on_event),
            partition_by=list(table.partition_by), sort_by=list(table.sort_by), properties=properties,
            location=table.location if table.format == "iceberg" else None,
        )  # fmt: skip
        log.info("table %s was created with the columns %s", table.name, ", ".join(made.schema.names))
        if table.branch is not None:
            made = sw.open(self._address(table), **self._opening(table))
        return self._keep(table, made)

    def widen(
        self, table: TargetTable, found: sw.Table, fields: Sequence[pa.Field], wider: Sequence[pa.Field] = ()
    ) -> sw.Table:
        """The table with new columns, and wider ones: an append of no rows, for ``apply_changes`` itself changes none.

        A crash after it leaves columns that are NULL in every row, or wider than any value, and the replay finds them there.
        The columns that the table has are named too: it refuses a frame that lacks one that is NOT NULL.

        Raises:
            InvalidInputError: another engine renamed a column to which records still bring values.
        """
        schema = with_fields(found.schema, wider)
        for name, now in renamed(found, fields).items():
            raise sw.InvalidInputError(
                f"Records of {table.name} have a column {name}, which another engine renamed to {now} in the table. It was not added again. "
                f"Rename it back, or rename it at the source too; or, if {name} is to be a column of its own from now on, add it with that "
                f"engine (ALTER TABLE ... ADD COLUMN {name}). Then replay these records."
            )
        found.append(pa.schema([*schema, *fields]).empty_table(), schema_mode="widen" if wider else "merge")
        for what, some in (("new columns", fields), ("wider columns", wider)):
            if some:
                log.info(
                    "table %s has %s: %s",
                    table.name,
                    what,
                    ", ".join(f"{one.name} {one.type}" for one in some),
                )
        return found.refresh()

    def tell_copies(self, table: TargetTable, receipt: sw.Receipt) -> None:
        """Warn once of a table of which a batch rewrites far more than it changes."""
        counts, copied = receipt.changes or {}, receipt.copied_bytes or 0
        changes = sum(count for name, count in counts.items() if name != "applied")
        with self._lock:
            if copied < COPIED_BYTES or copied < COPIED_PER_CHANGE * changes or table.name in self._warned:
                return
            self._warned.add(table.name)
        cure = (
            "name all engines that read it in readers, of which each reads deletion vectors"
            if table.format == "delta"
            else "set write_mode to merge-on-read"
        )
        log.warning(
            "table %s: %s changes rewrote files of %.0f MB, %.1f kB for each change, and later batches will do the same: only files "
            "that hold changed rows are rewritten, but all of their rows are. If changes hit all of the table, %s, before it is created; for a table that "
            "is there, see the documentation of cdc, write_mode.",
            table.name,
            f"{changes:,}",
            copied / 1e6,
            copied / 1e3 / max(changes, 1),
            cure,
        )

    def _keep(self, table: TargetTable, found: sw.Table) -> sw.Table:
        with self._lock:
            return self._open.setdefault(table.name, found)

    def _address(self, table: TargetTable) -> str:
        if table.format == "iceberg":
            return table.name
        if table.location is not None:
            return table.location
        return f"{str(self._config.warehouse).rstrip('/')}/{table.database}/{table.table}"

    def _opening(self, table: TargetTable) -> dict[str, Any]:
        on = {} if table.branch is None else {"branch": table.branch}
        return self._config.opening(table.format, self._on_event) | on


def properties_of(table: TargetTable) -> dict[str, str]:
    """The properties that a table is created with, by its configuration."""
    marks = "delta.enableDeletionVectors" if table.format == "delta" else "write.merge.mode"
    value = "true" if table.format == "delta" else "merge-on-read"
    return {**table.properties, **({marks: value} if table.marks_rows else {})}


def has_branch(found: Any, branch: str) -> bool:
    """Whether an Iceberg table has a branch."""
    return branch in found.iceberg.metadata.refs


def keys_of(found: sw.Table | None) -> tuple[str, ...] | None:
    """The key columns that the job chose when it created a table; None if it did not."""
    recorded = "" if found is None else found.properties.get(KEYS, "")
    return tuple(json.loads(recorded)) if recorded else None


def own_names_of(found: sw.Table) -> OwnNames:
    """The names of the job's own columns that the table was created with."""
    return OwnNames.chosen(json.loads(found.properties.get(OWN_NAMES, "{}")))


def schema_of(table: TargetTable, keys: Sequence[str], added: Sequence[pa.Field]) -> pa.Schema:
    """The schema of a new table: its key first, our columns last, NULL allowed everywhere.

    A source may drop a column or let it be NULL at any time; keys and sequences are checked as they are written.
    """
    by_name = {field.name: field for field in added}
    first = [by_name[name] for name in keys if name in by_name]
    last = [by_name[name] for name in table.own if name in by_name]
    return pa.schema([*first, *(field for field in added if field not in first and field not in last), *last])
