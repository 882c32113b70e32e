"""Makes and reads manifests of format version 3, which give each row an id (Iceberg spec, "Row Lineage").

PyIceberg (0.12.0) writes no such manifest, and reads them without the fields that tell of ids: a list that it read and that is
written again would give all rows other ids.  What it lacks is here, and goes when it has it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from pyiceberg.avro.file import AvroFile, AvroOutputFile
from pyiceberg.io import FileIO, InputFile
from pyiceberg.manifest import (
    DATA_FILE_TYPE,
    MANIFEST_ENTRY_SCHEMAS,
    MANIFEST_LIST_FILE_SCHEMAS,
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    ManifestListWriterV2,
    ManifestWriterV2,
    PartitionFieldSummary,
    _inherit_from_manifest,
)
from pyiceberg.typedef import TableVersion

from safewrite.errors import UnsupportedTableError

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata

_MEND = "Nothing was written. The engine that wrote this metadata has to mend it."
LAST = 2**63 - 1
"""The greatest row id that there is."""
VERSION: TableVersion = 3
"""The format version from which rows have ids."""
_FIRST_ROW_ID = len(MANIFEST_LIST_FILE_SCHEMAS[2].fields)
"""Where the first row id stands in a manifest's record, which has all fields of version 2 before it."""


_OWN_ROW_ID, _REFERENCED, _OFFSET = 16, 17, 18
"""Where a file's record has the id of its first row; the data file that a delete file is of, and where a vector begins."""


class NumberedFile(DataFile):
    """A file with all that manifests of version 3 say, and with what its rows inherit of its entry."""

    sequence: int = 0
    """The sequence number of rows that have none of their own."""

    @property
    def first_row_id(self) -> int | None:
        """The id of the first row, from which those on go that have none of their own; None in tables that were upgraded."""
        found: int | None = self._data[_OWN_ROW_ID]
        return found

    @property
    def referenced(self) -> str | None:
        """The data file that a delete file is of, if it is of one alone and says so."""
        found: str | None = self._data[_REFERENCED]
        return found

    @property
    def offset(self) -> int | None:
        """Where in its file a deletion vector begins."""
        found: int | None = self._data[_OFFSET]
        return found


def live_entries(manifest: ManifestFile, file_io: FileIO) -> list[ManifestEntry]:
    """The live entries of a manifest of any format version, with :class:`NumberedFile`; each data file has its first row id.

    A file that says none has that of the manifest, and the next such file those after its rows (spec, "First Row ID Inheritance").
    """
    with AvroFile[ManifestEntry](
        file_io.new_input(manifest.manifest_path),
        MANIFEST_ENTRY_SCHEMAS[VERSION],
        read_types={-1: ManifestEntry, 2: NumberedFile},
        read_enums={0: ManifestEntryStatus, 101: FileFormat, 134: DataFileContent},
    ) as reader:
        found = [
            _inherit_from_manifest(one, manifest)
            for one in reader
            if one.status != ManifestEntryStatus.DELETED
        ]
    at = first_row_id(manifest)
    for one in found:
        file = one.data_file
        assert isinstance(file, NumberedFile)
        file.sequence = one.sequence_number or 0
        if at is not None and file.first_row_id is None:
            file[_OWN_ROW_ID], at = at, at + file.record_count
    return found


def read_list(file: InputFile) -> list[ManifestFile]:
    """The manifests of a list of any format version, each with its first row id; None where it has none."""
    with AvroFile[ManifestFile](
        file,
        MANIFEST_LIST_FILE_SCHEMAS[VERSION],
        read_types={-1: ManifestFile, 508: PartitionFieldSummary},
        read_enums={517: ManifestContent},
    ) as reader:
        return list(reader)


def first_row_id(manifest: ManifestFile) -> int | None:
    """The id of the first row of a manifest, where its list says one."""
    data: Sequence[Any] = manifest._data  # noqa: SLF001 - PyIceberg names no fields of version 3
    found: int | None = data[_FIRST_ROW_ID] if len(data) > _FIRST_ROW_ID else None
    return found


def next_row_id(metadata: TableMetadata) -> int:
    """The id that the table gives next.

    Raises:
        UnsupportedTableError: it does not say, or says one that a snapshot gave.
    """
    if (why := why_unnumbered(metadata)) is not None:
        raise UnsupportedTableError(f"The table has format version 3, and {why}. {_MEND}")
    found: int = getattr(metadata, "next_row_id")  # noqa: B009 - of version 3 alone
    return found


def why_unnumbered(metadata: TableMetadata) -> str | None:
    """Why nobody knows the id that the table gives next; None where it is known."""
    found: int | None = getattr(metadata, "next_row_id", None)
    if found is None:
        return "its metadata does not say the next row id (next-row-id)"
    ends = (
        one.first_row_id + (one.added_rows or 0) for one in metadata.snapshots if one.first_row_id is not None
    )
    given = max(ends, default=0)
    if given <= found:
        return None
    return f"its metadata says {found} as the next row id (next-row-id), while snapshots gave all up to {given - 1}"


def numbered(manifests: Iterable[ManifestFile], next_row_id: int) -> tuple[list[ManifestFile], int]:
    """Copies of manifests, each data manifest with a first row id, and how many ids were given from ``next_row_id`` on.

    A manifest that has one keeps it.  One that has none reserves ids for all rows that it names, also for those of older snapshots: in
    a table that was upgraded, the first commit gives them theirs.

    Raises:
        UnsupportedTableError: one does not say how many rows it names, or there are no ids left.
    """
    found, at = [], next_row_id
    for one in manifests:
        first = first_row_id(one)
        if first is None and one.content == ManifestContent.DATA:
            first, at = at, at + _rows(one)
        found.append(ManifestFile(*one._data[:_FIRST_ROW_ID], first))  # noqa: SLF001 - its copy() shares the data
    if at > LAST:
        raise UnsupportedTableError(f"The table has no row ids left: the next one is {next_row_id}. {_MEND}")
    return found, at - next_row_id


def _rows(manifest: ManifestFile) -> int:
    added, existing = manifest.added_rows_count, manifest.existing_rows_count
    if added is None or existing is None:
        raise UnsupportedTableError(
            f"The manifest {manifest.manifest_path} does not say how many rows it names, so they cannot be given ids, as format version "
            "3 demands. Nothing was committed. Let Spark rewrite the manifests: CALL <catalog>.system.rewrite_manifests('TABLE')."
        )
    return added + existing


class ManifestWriterV3(ManifestWriterV2):
    """PyIceberg's writer of manifests, of version 3."""

    contents = ManifestContent.DATA

    def content(self) -> ManifestContent:
        return self.contents

    @property
    def _meta(self) -> dict[str, str]:
        kind = "data" if self.contents == ManifestContent.DATA else "deletes"
        return {**super()._meta, "content": kind}

    @property
    def version(self) -> TableVersion:
        return VERSION

    def new_writer(self) -> AvroOutputFile[ManifestEntry]:
        schema = self._with_partition(VERSION)
        return AvroOutputFile[ManifestEntry](self._output_file, schema, "manifest_entry", schema, self._meta)

    def prepare_entry(self, entry: ManifestEntry) -> ManifestEntry:
        """The entry as version 3 has it.  A file that is new says no row id: it inherits that of the manifest."""
        prepared = super().prepare_entry(entry)
        fields: list[Any] = list(prepared._data)  # noqa: SLF001 - as above
        file = fields[-1]
        spare = len(DATA_FILE_TYPE[VERSION].fields) - len(file._data)  # noqa: SLF001 - as above
        fields[-1] = DataFile(*file._data, *[None] * spare)  # noqa: SLF001 - as above
        return ManifestEntry(*fields)


class ManifestListWriterV3(ManifestListWriterV2):
    """PyIceberg's writer of manifest lists, of version 3; ``first_row_id`` is that of the snapshot."""

    def __init__(self, *given: Any, first_row_id: int) -> None:
        super().__init__(*given)
        self._format_version = VERSION
        self._meta |= {"format-version": str(VERSION), "first-row-id": str(first_row_id)}

    def __enter__(self) -> ManifestListWriterV3:
        schema = MANIFEST_LIST_FILE_SCHEMAS[VERSION]
        self._writer = AvroOutputFile[ManifestFile](
            self._output_file, schema, "manifest_file", schema, self._meta
        )
        self._writer.__enter__()
        return self
