"""Decides which table a change goes to, by the source table that its envelope names."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from safewrite.cdc.config.job import Config
from safewrite.cdc.config.table_config import TableOptions, TargetTable
from safewrite.cdc.records.change import DeadLetter, SourceTable, UndecodableError
from safewrite.cdc.records.change_set import ChangeSet
from safewrite.intake.tables import TableFormat

_NAME = re.compile(r"[^\s./\\]{1,200}")
_NAME_BYTES_MAX = 255


class Router:
    """Finds the table of a source: the most exact ``source`` of the configuration, else what becomes of unknown ones."""

    def __init__(self, config: Config) -> None:
        self._named = {table.source or table.table: table for table in config.tables}
        self._taken = {table.name: source for source, table in self._named.items()}
        self._create = config.unknown_tables == "create"
        self._database = config.unknown_database
        self._defaults = config.defaults or TableOptions()
        self._found: dict[SourceTable, TargetTable] = {}
        self._tables: dict[str, TargetTable] = {}

    def route(self, changes: ChangeSet) -> tuple[dict[str, tuple[TargetTable, ChangeSet]], list[DeadLetter]]:
        """Changes by the name of their table, and those that no table takes."""
        routed: dict[str, tuple[TargetTable, ChangeSet]] = {}
        dead: list[DeadLetter] = []
        for (name, fault), part in changes.grouped(self._told).items():
            if name is None:
                dead += part.letters(fault)
            else:
                routed[name] = self._tables[name], part
        return routed, dead

    def _told(self, source: SourceTable, _: bool) -> tuple[str | None, str]:
        """The name of a source's table, or why it has none."""
        try:
            table = self.table_of(source)
        except UndecodableError as error:
            return None, str(error)
        self._tables[table.name] = table
        return table.name, ""

    def table_of(self, source: SourceTable) -> TargetTable:
        """The table of a source.

        Raises:
            UndecodableError: the configuration has none, and none may be created.
        """
        if source not in self._found:
            self._found[source] = self._named_table(source) or self._created(source)
        return self._found[source]

    def of_tombstone(
        self, names: Sequence[str], has_landed: Callable[[str], bool]
    ) -> tuple[TargetTable, SourceTable] | None:
        """The table and the source, without its database, of a tombstone; None where nothing tells them.

        Args:
            names: of the topic that its table has or would have (``prefix.schema.table``), the surest first.
            has_landed: whether the job has landed rows in the table of a name.
        """
        for name in names:
            *_, schema, table = ("", *name.split("."))
            found = self._of_parts(schema, table) if schema else None
            if found is not None and (found.name in self._taken or has_landed(found.name)):
                return found, SourceTable("", schema, table)
        return None

    def _of_parts(self, schema: str, table: str) -> TargetTable | None:
        source = SourceTable("", schema, table)
        named = [one for known, one in self._named.items() if known.split(".")[-2:] == [schema, table]]
        if named:
            return named[0] if len(named) == 1 else None
        try:
            return self._named_table(source) or self._created(source)
        except UndecodableError:
            return None

    def _named_table(self, source: SourceTable) -> TargetTable | None:
        # MySQL has no schemas and DMS names no databases: what is empty is not part of the name.
        last_two = ".".join(part for part in (source.schema or source.database, source.table) if part)
        for name in (str(source), last_two, source.table):
            if name in self._named:
                return self._named[name]
        return None

    def created(self, name: str) -> TargetTable:
        """A table that the configuration does not name, as the job makes them."""
        database, _, table = name.partition(".")
        return TargetTable(database=database, table=table, **self._defaults.model_dump(exclude_unset=True))

    def _created(self, source: SourceTable) -> TargetTable:
        if not self._create or self._database is None:
            raise UndecodableError(f"no table of the configuration takes rows of {source}")
        name = "_".join(part for part in (source.schema or source.database, source.table) if part)
        fault = _fault_of(name, self._defaults.format)
        if fault is not None:
            raise UndecodableError(f"no table can be created for {source}: {fault}; name one in tables")
        table = TargetTable(
            database=self._database,
            table=name,
            source=str(source),
            **self._defaults.model_dump(exclude_unset=True),
        )
        if table.name in self._taken:
            raise UndecodableError(
                f"the table {table.name} would take rows of {source} and, by the configuration, of {self._taken[table.name]}; name one in "
                "tables"
            )
        return table


def _fault_of(name: str, form: TableFormat) -> str | None:
    """Why a table of a source cannot have a name; None where nothing is known against it."""
    try:
        size = len(name.encode())
    except UnicodeEncodeError:
        return f"{name!r} is half of a character, and no text"
    if not _NAME.fullmatch(name):
        return f"{name!r} is no name"
    if size > _NAME_BYTES_MAX:
        return f"{name!r} has {size} bytes, and a folder's name at most {_NAME_BYTES_MAX}"
    if form == "iceberg" and set(name) & set("#?"):
        return f"PyIceberg reads '#' and '?' in {name!r} as the end of a path"
    return None
