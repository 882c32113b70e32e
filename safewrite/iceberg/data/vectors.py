"""Reads and counts deletion vectors of Iceberg tables: which rows of a data file are gone (Iceberg spec, "Deletion Vectors"; Puffin spec).

PyIceberg (0.12.0) reads manifests without the fields that say where a vector is, and applies every vector of a Puffin file that names
the data file.  A Puffin file may hold many, and older ones of the same data file: the one counts that a live manifest entry points at.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from pyiceberg.manifest import DataFile, FileFormat, ManifestEntry

from safewrite.changes.meaning.row_vectors import WORD, VectorError, deserialized, numbers_in, unframed

if TYPE_CHECKING:
    from pyiceberg.io import FileIO
    from pyiceberg.table import FileScanTask

    from safewrite.changes.meaning.positions import Flags, Numbers


def sequence_of(entry: ManifestEntry) -> int:
    """The data sequence number of an entry; 0 for those of tables that had none."""
    return entry.sequence_number or 0


def vectors_in(entries: Iterable[ManifestEntry]) -> dict[str, ManifestEntry]:
    """The vector of each data file.

    Raises:
        ValueError: an entry does not say of which file it is and where, or a file has two.
    """
    found: dict[str, ManifestEntry] = {}
    for entry in entries:
        path, _, _ = place_of(entry.data_file)
        if path in found:
            raise ValueError(
                f"the snapshot has two deletion vectors of {path}: no engine knows which of them counts"
            )
        found[path] = entry
    return found


def vector_of(task: FileScanTask) -> DataFile | None:
    """The entry of the deletion vector of a data file.

    Raises:
        ValueError: its plan does not say which vector that is.
    """
    found = [one for one in task.delete_files if one.file_format == FileFormat.PUFFIN]
    if not found:
        return None
    if len(found) > 1 or place_of(found[0])[0] != task.file.file_path:
        raise ValueError(f"the plan does not say which deletion vector {task.file.file_path} has")
    return found[0]


def live_rows(file: DataFile, file_io: FileIO, rows: int) -> Flags:
    """Which rows of a data file with so many are left by the vector that the entry ``file`` points at.

    Raises:
        ValueError: it is damaged, or another one.
        Exception: whatever the store raises.
    """
    _, offset, size = place_of(file)
    with file_io.new_input(file.file_path).open() as stream:
        stream.seek(offset)
        blob = stream.read(size)
    flags = np.ones(rows, np.bool_)
    flags[gone_rows(file, blob, rows)] = False
    return flags


def gone_rows(file: DataFile, blob: bytes, rows: int) -> Numbers:
    """The rows of a data file with so many that the vector takes which the entry ``file`` points at, ascending; ``blob`` is what is there.

    Raises:
        ValueError: it is damaged, or another one.
    """
    _, _, size = place_of(file)
    try:
        return numbers_in(deserialized(unframed(blob, 0, size - 2 * WORD), file.record_count), rows)
    except VectorError as error:
        raise ValueError(f"the deletion vector in {file.file_path} cannot be read: {error}") from error


def place_of(file: DataFile) -> tuple[str, int, int]:
    """The data file that a vector is of, and where in its own file it is: fields 143 to 145 of an entry."""
    known: list[Any] = list(file._data[17:20])  # noqa: SLF001 - PyIceberg names no fields of version 3
    if (
        len(known) < 3
        or not isinstance(known[0], str)
        or type(known[1]) is not int
        or type(known[2]) is not int
        or min(known[1:]) < 0
    ):
        raise ValueError(
            f"nothing says where the deletion vector in {file.file_path} is, or of which file: it was planned by PyIceberg or by the "
            "catalog, or its manifest is not as the specification has it. Read the table's rows by rows() or added_since()"
        )
    return known[0], known[1], known[2]


# --- what a snapshot says of them --------------------------------------------------------------------
def as_counted(file: DataFile) -> DataFile:
    """A file as the sums of a snapshot count it: of a file of vectors the bytes of this one."""
    if file.file_format != FileFormat.PUFFIN:
        return file
    fields = [*file._data]  # noqa: SLF001 - as below
    fields[5] = place_of(file)[2]
    return DataFile(*fields)


def counted(
    sums: Mapping[str, str], added: Sequence[DataFile], removed: Sequence[DataFile]
) -> dict[str, str]:
    """The sums of a snapshot, in which vectors are counted by themselves; PyIceberg takes them for position delete files."""
    found = dict(sums)
    for what, files in (("added", added), ("removed", removed)):
        vectors = sum(one.file_format == FileFormat.PUFFIN for one in files)
        if vectors:
            name = f"{what}-position-delete-files"
            others = int(found.pop(name)) - vectors
            found |= {f"{what}-dvs": str(vectors)} | ({name: str(others)} if others else {})
    return found
