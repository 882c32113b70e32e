"""Reads raw files: their records, the bronze rows of these, and the tag of the content that a file has now."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from safewrite.medallion.bronze.restore_rows import key_of_content
from safewrite.medallion.files.file_versions import Content, content_of, last_of, tag_of
from safewrite.medallion.files.layout import SourceFile
from safewrite.medallion.files.mixed import MixedFiles
from safewrite.medallion.files.records import Records, split
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
    return whole.parts[job.name].records(source, files, columns, owner_columns), whole.tag
