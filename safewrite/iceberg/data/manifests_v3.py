"""Makes and reads manifests of format version 3, which give each row an id (Iceberg spec, "Row Lineage").

PyIceberg (0.12.0) writes no such manifest, and reads them without the fields that tell of ids: a list that it read and that is
written again would give all rows other ids.  What it lacks is here, and goes when it has it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from pyiceberg.avro.file import AvroFile, AvroOutputFile
from pyiceberg.io import InputFile
from pyiceberg.manifest import (
    DATA_FILE_TYPE,
    MANIFEST_LIST_FILE_SCHEMAS,
    DataFile,
    ManifestContent,
    ManifestEntry,
    ManifestFile,
    ManifestListWriterV2,
    ManifestWriterV2,
    PartitionFieldSummary,
)
from pyiceberg.typedef import TableVersion

from safewrite.errors import UnsupportedTableError

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata

NO_NEXT_ROW_ID = (
    "The table has format version 3, and its metadata does not say the next row id (next-row-id). Nothing was written. The engine "
    "that wrote this metadata has to mend it."
)
VERSION: TableVersion = 3
"""The format version from which rows have ids."""
_FIRST_ROW_ID = len(MANIFEST_LIST_FILE_SCHEMAS[2].fields)
"""Where the first row id stands in a manifest's record, which has all fields of version 2 before it."""


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
        UnsupportedTableError: it does not say.
    """
    found: int | None = getattr(metadata, "next_row_id", None)
    if found is None:
        raise UnsupportedTableError(NO_NEXT_ROW_ID)
    return found


def numbered(manifests: Iterable[ManifestFile], next_row_id: int) -> tuple[list[ManifestFile], int]:
    """Copies of manifests, each data manifest with a first row id, and how many ids were given from ``next_row_id`` on.

    A manifest that has one keeps it.  One that has none reserves ids for all rows that it names, also for those of older snapshots: in
    a table that was upgraded, the first commit gives them theirs.

    Raises:
        UnsupportedTableError: one does not say how many rows it names.
    """
    found, at = [], next_row_id
    for one in manifests:
        first = first_row_id(one)
        if first is None and one.content == ManifestContent.DATA:
            first, at = at, at + _rows(one)
        found.append(ManifestFile(*one._data[:_FIRST_ROW_ID], first))  # noqa: SLF001 - its copy() shares the data
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
