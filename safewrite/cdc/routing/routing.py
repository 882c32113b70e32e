"""Decides which table a change goes to, by the source table that its envelope names."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum

from safewrite.cdc.config.job import Config
from safewrite.cdc.config.table_config import TableOptions, TargetTable
from safewrite.cdc.records.change import DeadLetter, SourceTable, UndecodableError
from safewrite.cdc.records.change_set import ChangeSet
from safewrite.intake.tables import TableFormat

_NAME = re.compile(r"[^\s./\\]{1,200}")
_NAME_BYTES_MAX = 255


class _Nowhere(Enum):
    """What becomes of changes that no table takes."""

    DEAD, IGNORED = "dead", "ignored"


@dataclass
class Routing:
    """Changes by the name of their table, those that no table takes, and those that are passed over."""

    tables: dict[str, tuple[TargetTable, ChangeSet]] = field(default_factory=dict)
    dead: list[DeadLetter] = field(default_factory=list)
    ignored: ChangeSet = field(default_factory=ChangeSet)


class Router:
    """Finds the table of a source: the most exact ``source`` of the configuration, else what becomes of unknown ones."""

    def __init__(self, config: Config) -> None:
        self._named = {table.source or table.table: table for table in config.tables}
        self._taken = {table.name: source for source, table in self._named.items()}
        self._unknown, self._passes_over = config.unknown_tables, config.ignores
        self._database = config.unknown_database
        self._defaults = config.defaults or TableOptions()
        self._found: dict[SourceTable, TargetTable] = {}
        self._tables: dict[str, TargetTable] = {}

    def route(self, changes: ChangeSet) -> Routing:
        """What becomes of changes, by their sources."""
        found = Routing()
        for (name, fault), part in changes.grouped(self._told).items():
            if name is _Nowhere.IGNORED:
                found.ignored = part
            elif name is _Nowhere.DEAD:
                found.dead += part.letters(fault)
            else:
                found.tables[name] = self._tables[name], part
        return found

    def _told(self, source: SourceTable, _: bool) -> tuple[str | _Nowhere, str]:
        """The name of a source's table, or why it has none."""
        if self.ignores(source):
            return _Nowhere.IGNORED, ""
        try:
            table = self.table_of(source)
        except UndecodableError as error:
            return _Nowhere.DEAD, str(error)
        self._tables[table.name] = table
        return table.name, ""

    def ignores(self, source: SourceTable, *, is_sure: bool = True) -> bool:
        """Whether changes of a source are passed over: by a pattern that says more of it than a table of the configuration does.

        Args:
            is_sure: whether it is the source; else only a pattern says so.
        """
        names = _names(source)
        named = next((level for level, name in enumerate(names) if name in self._named), None)
        if named is None and self._unknown == "ignore" and is_sure:
            return True
        return self._passes_over(*names[:named])

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
            schema, table = _parts(name)
            found = self._of_parts(schema, table) if schema else None
            if found is not None and (found.name in self._taken or has_landed(found.name)):
                return found, SourceTable("", schema, table)
        return None

    def ignores_tombstone(self, names: Sequence[str]) -> bool:
        """Whether a tombstone of these names is passed over; a topic may have several tables, and is not sure to name one."""
        for place, name in enumerate(names, 1):
            source = SourceTable("", *_parts(name))
            if self._ending_in(source):
                return False
            if source.schema and self.ignores(source, is_sure=place < len(names)):
                return True
        return False

    def _ending_in(self, source: SourceTable) -> list[TargetTable]:
        """The tables of the configuration whose source has this schema and this name, in whatever database."""
        last = [source.schema, source.table]
        return [one for known, one in self._named.items() if known.split(".")[-2:] == last]

    def _of_parts(self, schema: str, table: str) -> TargetTable | None:
        source = SourceTable("", schema, table)
        if named := self._ending_in(source):
            return named[0] if len(named) == 1 else None
        try:
            return self._named_table(source) or self._created(source)
        except UndecodableError:
            return None

    def _named_table(self, source: SourceTable) -> TargetTable | None:
        return next((self._named[name] for name in _names(source) if name in self._named), None)

    def created(self, name: str) -> TargetTable:
        """A table that the configuration does not name, as the job makes them."""
        database, _, table = name.partition(".")
        return TargetTable(database=database, table=table, **self._defaults.model_dump(exclude_unset=True))

    def _created(self, source: SourceTable) -> TargetTable:
        if self._unknown != "create" or self._database is None:
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


def _names(source: SourceTable) -> tuple[str, str, str]:
    """The names by which a configuration may mean a source, the most exact first.

    MySQL has no schemas and DMS names no databases: what is empty is not part of the name.
    """
    last_two = ".".join(part for part in (source.schema or source.database, source.table) if part)
    return str(source), last_two, source.table


def _parts(name: str) -> tuple[str, str]:
    """The schema and the table of the name of a topic."""
    *_, schema, table = ("", *name.split("."))
    return schema, table


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
