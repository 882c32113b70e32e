"""Writes and reads a table's metadata files by requests of our own, in PyIceberg's catalogs that keep such files themselves.

PyIceberg looks whether the file is there, uploads it in three requests, asks for its size and reads it; and reads again what it
has just written.  Each file has a name of its own and never changes, so what was written or read once is kept.

A file lists all snapshots of its table.  PyIceberg copies them all for every change; here the new metadata has those of the one that was
loaded for this change, which no user has seen.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from pyiceberg.catalog import MetastoreCatalog
from pyiceberg.serializers import Compressor, FromInputFile, ToOutputFile
from pyiceberg.table import Table

from safewrite.errors import UnsupportedTableError
from safewrite.iceberg.catalog import metadata_v3 as v3
from safewrite.iceberg.catalog.files import MemoryFile
from safewrite.iceberg.catalog.s3 import direct
from safewrite.iceberg.metadata import newest_ms
from safewrite.protocol.effects import PROVED, Ok

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.io import FileIO, OutputFile
    from pyiceberg.table import StagedTable
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.table.update import TableRequirement, TableUpdate
    from pyiceberg.typedef import Identifier

KEPT_BYTES_MAX = 2**24
T = TypeVar("T")


def writes(catalog: Catalog, metadata: TableMetadata) -> bool:
    """Whether a catalog writes such metadata: those of PyIceberg's own that keep such files read version 3 and do not write it."""
    is_rest = any(one.__name__ == "RestCatalog" for one in type(catalog).__mro__)
    return metadata.format_version < v3.VERSION or is_rest or isinstance(catalog, MetadataFiles)


def check_writes(catalog: Catalog, name: str, metadata: TableMetadata) -> None:
    """Refuse a table whose metadata its catalog does not write.

    Raises:
        UnsupportedTableError: it has format version 3.
    """
    if not writes(catalog, metadata):
        raise UnsupportedTableError(
            f"safewrite cannot write this to {name}: format version: the table has format version 3, and the catalog that was given, a "
            f"{type(catalog).__name__}, does not write its metadata. Nothing was written. Give catalog= as a dict of the catalog's "
            "properties, as its name in PyIceberg's configuration, or as an object of PyIceberg's own SqlCatalog or GlueCatalog."
        )


class MetadataFiles(MetastoreCatalog):
    """A catalog whose metadata files are asked for as the table's other files are; where that fails, PyIceberg's way goes on."""

    def __init__(self, name: str, **properties: Any) -> None:
        self.forget()
        super().__init__(name, **properties)

    @classmethod
    def like(cls, catalog: Catalog) -> MetadataFiles:
        """A catalog with the settings and the connections of one of PyIceberg's, which stays as it is."""
        made = cls.__new__(cls)
        made.__dict__ |= catalog.__dict__
        made.forget()
        return made

    def forget(self) -> None:
        """Know no file."""
        # No lock: a thread replaces all of it at once.
        self._bodies: dict[str, bytes] = {}

    def known_table(self, identifier: Identifier, location: str) -> Table | None:
        """The table whose metadata is in this file; None where PyIceberg must read it, and say what is wrong with it."""
        body = self._bodies.get(location) or self._read(location)
        if body is None:
            return None
        metadata = FromInputFile.table_metadata(MemoryFile(location, body).to_input_file())
        file_io = self._load_file_io(metadata.properties, location)
        return Table(identifier, metadata, location, file_io, self)

    def _read(self, location: str) -> bytes | None:
        reached = direct(self._load_file_io(location=location), location)
        outcome = None if reached is None else reached[0].get(reached[1])
        if not isinstance(outcome, Ok):
            return None
        assert isinstance(outcome.value, bytes)
        return self._keep(location, outcome.value)

    def _update_and_stage_table(
        self,
        current_table: Table | None,
        table_identifier: Identifier,
        requirements: tuple[TableRequirement, ...],
        updates: tuple[TableUpdate, ...],
    ) -> StagedTable:
        if current_table is not None:
            v3.check_numbers(current_table.metadata, updates)
            shared = _without_copies(current_table.metadata)
            location, io = current_table.metadata_location, current_table.io
            current_table = Table(table_identifier, shared, location, io, self)
        is_new = current_table is None and v3.makes_v3(updates)
        given = v3.as_written(updates) if is_new else updates
        staged = super()._update_and_stage_table(current_table, table_identifier, requirements, given)
        if current_table is not None:
            staged.metadata = _not_before(staged.metadata, current_table.metadata)
        if is_new:
            staged.metadata = v3.upgraded(staged.metadata)
        return staged

    def _write_metadata(self, metadata: TableMetadata, io: FileIO, metadata_path: str) -> None:  # type: ignore[override]
        if (reached := direct(io, metadata_path)) is not None:
            file = MemoryFile(metadata_path)
            write(metadata, file)
            outcome = reached[0].put(reached[1], file.body)
            if isinstance(outcome, Ok):
                if outcome.value is PROVED:  # else the look after the commit reads what the store holds
                    self._keep(metadata_path, file.body)
                return
        write(metadata, io.new_output(metadata_path))

    def _keep(self, location: str, body: bytes) -> bytes:
        kept = {name: old for name, old in self._bodies.items() if name != location} | {location: body}
        spare = sum(map(len, kept.values())) - KEPT_BYTES_MAX
        for name in tuple(kept):
            if spare <= 0:
                break
            spare -= len(kept.pop(name))
        self._bodies = kept
        return body


class _Shared(list[T]):
    """Frozen models: a deep copy of the table's metadata has the same ones.  A sum of lists stays one of these."""

    def __deepcopy__(self, memo: object) -> _Shared[T]:
        return _Shared(self)

    def __add__(self, other: Any) -> Any:
        return _Shared([*self, *other])


def _without_copies(metadata: TableMetadata) -> TableMetadata:
    """The metadata, of which a deep copy makes no snapshot and no entry of the history again."""
    shared = {"snapshots": _Shared(metadata.snapshots), "snapshot_log": _Shared(metadata.snapshot_log)}
    return metadata.model_copy(update=shared)


def _not_before(metadata: TableMetadata, base: TableMetadata) -> TableMetadata:
    """The metadata with no earlier time than that which it follows, and its newest snapshot, whatever this process's clock says.

    PyIceberg (0.12.0) gives a change without a snapshot the time of now.  Where a writer's clock was ahead before, Java's library
    refuses to read that (``TableMetadata``: "Invalid update timestamp").
    """
    least_ms = max(base.last_updated_ms, newest_ms(metadata))
    if metadata.last_updated_ms == least_ms:
        return metadata
    return metadata.model_copy(update={"last_updated_ms": least_ms})


def write(metadata: TableMetadata, file: OutputFile, *, overwrite: bool = False) -> None:
    """Write a metadata file of any format version."""
    if metadata.format_version < v3.VERSION:
        ToOutputFile.table_metadata(metadata, file, overwrite=overwrite)
        return
    body = Compressor.get_compressor(file.location).bytes_compressor()(v3.dumped(metadata).encode())
    with file.create(overwrite=overwrite) as stream:
        stream.write(body)
