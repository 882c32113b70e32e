"""Reads raw files: their records, the bronze rows of these, and the tag of the content that a file has now."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from safewrite.errors import InvalidInputError
from safewrite.medallion.bronze.restore_rows import key_of_content
from safewrite.medallion.files.file_versions import Content, content_of, last_of, tag_of
from safewrite.medallion.files.layout import SourceFile
from safewrite.medallion.files.mixed import MixedFiles, numbered
from safewrite.medallion.files.records import RFC_ADVICE, BadRecord, Records, split
from safewrite.medallion.files.rows import BronzeRows, bronze_rows
from safewrite.medallion.tables.job import TableJob


@dataclass(frozen=True, slots=True)
class FileRead:
    """The records of a file that are a table's, and the tag of the content that they are."""

    source: SourceFile
    tag: str
    records: Records

    def rows(self, job: TableJob) -> BronzeRows:
        """What bronze has of it, or is to have.  Raises InvalidInputError for other columns than the table's."""
        owner_columns = job.places.config.owner_columns if self.source.is_mixed else ()
        return bronze_rows(
            self.source, self.tag, self.records, job.config, job.columns, owner_columns=owner_columns
        )


def read_file(job: TableJob, source: SourceFile, mixed: MixedFiles, known: Mapping[str, Content]) -> FileRead:
    """Read a file of which bronze has the contents ``known``.

    Raises:
        InvalidInputError: it cannot be read.
        StorageError: it is gone, or is no longer what was listed.
    """
    records, content = records_of(job, source, mixed)
    return FileRead(source, tag_in(job, source, content, known), records)


def tag_in(job: TableJob, source: SourceFile, content: str, known: Mapping[str, Content]) -> str:
    """As :func:`tag_of`; but what was seen written again before there was a new task is none of that task's."""
    tag = tag_of(source, content, known, job.config.epoch)
    last = last_of(content, known)
    if last is None or tag in known or job.bronze.resolve(key_of_touch(source, tag)) is None:
        return tag
    return last


def key_of_touch(source: SourceFile, tag: str) -> str:
    """The key that notes in bronze: at that time a file of a full load was written again, and held what it had held."""
    return key_of_content(source.path, f"{content_of(tag)}@{source.raw.changed_ms}#touched")


def records_of(job: TableJob, source: SourceFile, mixed: MixedFiles) -> tuple[Records, str]:
    """The records of a file that are this table's, and the tag of the file's content.  Raises as :func:`read_file`."""
    files, columns, owner_columns = job.config.files, job.columns.names, job.places.config.owner_columns
    if not source.is_mixed:
        content, tag = job.places.raw.read(source.raw)
        return split(source, content, files, columns, owner_columns), tag
    whole = mixed.get(source)
    part = whole.parts[job.name]
    # Unpacked already, and numbered as in the whole file.
    plain = replace(source, raw=replace(source.raw, path=source.path.removesuffix(".gz").removesuffix(".GZ")))
    found = split(plain, bytes(part.data), files, columns, owner_columns)
    if found.count != len(part.lines):
        raise InvalidInputError(
            f"{source.path} cannot be read: two readers find {found.count} and {len(part.lines)} records of {job.name} in it, "
            f"as where a quote stands within a value that is not in quotes. Nothing of it was written. {RFC_ADVICE}. Else mend the file."
        )
    numbers = numbered(part.lines)
    bad = [BadRecord(int(numbers[one.line - 1]), one.reason, one.text) for one in found.bad]
    records = replace(found, lines=numbers[found.lines - 1], bad=bad)
    return _without(records, set(part.doubtful)) if part.doubtful else records, whole.tag


def _without(records: Records, doubtful: Set[int]) -> Records:
    """The records, but for those that may have swallowed records of other tables."""
    reason = (
        f"a value in quotes goes over lines that would be records of tables if quotes were text. {RFC_ADVICE}"
    )
    taken = np.asarray([line not in doubtful for line in records.lines.tolist()], np.bool_)
    aside = [
        BadRecord(int(records.lines[row]), reason, records.text(row))
        for row in np.flatnonzero(~taken).tolist()
    ]
    bad = sorted([*records.bad, *aside], key=lambda one: one.line)
    rows = records.rows.filter(pa.array(taken, pa.bool_()))
    return replace(records, rows=rows, lines=records.lines[taken], bad=bad)
