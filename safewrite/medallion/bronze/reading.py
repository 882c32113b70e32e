"""Reads raw files: their records, and the tag of the content that a file has now."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from safewrite.medallion.bronze.restore_rows import key_of_content
from safewrite.medallion.files.file_versions import Content, content_of, last_of, tag_of
from safewrite.medallion.files.layout import SourceFile
from safewrite.medallion.files.mixed import MixedFiles
from safewrite.medallion.files.records import Records, split
from safewrite.medallion.tables.job import TableJob


@dataclass(frozen=True, slots=True)
class FileRead:
    """The records of a file that are a table's, and the tag of the content that they are."""

    source: SourceFile
    tag: str
    records: Records


def read_file(job: TableJob, source: SourceFile, mixed: MixedFiles, known: Mapping[str, Content]) -> FileRead:
    """Read a file of which bronze has the contents ``known``.

    Raises:
        InvalidInputError: it cannot be read.
        StorageError: it is gone, or is no longer what was listed.
    """
    files, columns, owner_columns = job.config.files, job.columns.names, job.places.config.owner_columns
    if source.is_mixed:
        whole = mixed.get(source)
        records, content = whole.parts[job.name].records(source, files, columns, owner_columns), whole.tag
    else:
        found, content = job.places.raw.read(source.raw)
        records = split(source, found, files, columns, owner_columns)
    return FileRead(source, tag_in(job, source, content, known), records)


def content_now(job: TableJob, source: SourceFile, mixed: MixedFiles) -> str:
    """The tag of the content that a file has now.  Raises as :func:`read_file`."""
    return mixed.get(source).tag if source.is_mixed else job.places.raw.tag(source.raw)


def tag_now(job: TableJob, source: SourceFile, mixed: MixedFiles, known: Mapping[str, Content]) -> str:
    """The tag of a file's rows, of which bronze has the contents ``known``.  Raises as :func:`read_file`."""
    return tag_in(job, source, content_now(job, source, mixed), known)


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
