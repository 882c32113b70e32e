"""Has Spark's Delta library read and write data files of a table; it commits none of them.

MERGE and OPTIMIZE of Delta are made of the same two calls.  Which files are read, and which stay, is decided by the log as
safewrite read it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from safewrite.delta.log.actions import Action, FileKey, file_key, rows_of
from safewrite.delta.log.snapshot import Snapshot
from safewrite.delta.write.staging import StagedFile
from safewrite.engine.spark import spark_errors
from safewrite.errors import ConflictError, InternalError, Kind
from safewrite.frames.spark.columns import metadata_column
from safewrite.protocol.staging import Mark

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_TAIL_BYTES = 64
_DELTA = "org.apache.spark.sql.delta"


@dataclass(frozen=True)
class SparkDelta:
    """A table as the session's Delta library has loaded it, at a version with the metadata that a write is planned on."""

    session: SparkSession
    log: Any
    snapshot: Any
    root: str

    def rows(self, adds: Iterable[Action], name: str, number: str | None = None) -> DataFrame:
        """The live rows of some files, without those that deletion vectors take away.

        The column ``name`` tells the file, the column ``number``, if given, the row's number in it.
        """
        from pyspark.sql import DataFrame

        jvm = _jvm(self.session)
        files = jvm.java.util.ArrayList()
        parse = getattr(jvm, f"{_DELTA}.actions.Action")
        for add in adds:
            files.add(parse.fromJson(json.dumps({"add": add})))
        listed = jvm.scala.collection.JavaConverters.asScalaBuffer(files).toList()
        made = self.log.createDataFrame(self.snapshot, listed, False, jvm.scala.Option.empty())
        frame = DataFrame(made, self.session)
        of_file = metadata_column(frame, "_metadata")
        told = [of_file.getField("file_path").alias(name)]
        told += [] if number is None else [of_file.getField("row_index").alias(number)]
        return frame.select("*", *told)

    def key(self, path: str, live: Mapping[str, FileKey]) -> FileKey:
        """The file that Spark names by its whole path, among the ``live`` ones by their paths within the table."""
        whole = unquote(path)
        key = live.get(whole[len(self.root) + 1 :]) if whole.startswith(f"{self.root}/") else None
        if key is None:
            raise InternalError(
                f"Spark read {whole}, which is no live file of {self.root}. Nothing was committed. Please report it."
            )
        return key

    def write(self, rows: DataFrame) -> list[StagedFile]:
        """Write the rows to new files of the table.

        Raises:
            StorageError: Spark could not write them; nothing was committed.
        """
        none = _jvm(self.session).scala.Option
        with spark_errors("write the data files"):
            transaction = self.log.startTransaction(none.empty(), none.apply(self.snapshot))
            written = transaction.writeFiles(rows._jdf)  # noqa: SLF001 - Java takes its own frames
            lines = [str(written.apply(number).json()) for number in range(written.size())]
        return [_staged(action["add"]) for line in lines if "add" in (action := json.loads(line))]


def _staged(add: Action) -> StagedFile:
    rows = rows_of(add)
    if rows is None:
        raise InternalError(
            "Delta's files do not say how many rows they hold. Nothing was committed; please report it."
        )
    mark = Mark(unquote(add["path"]), int(add["size"]), _TAIL_BYTES, ending=b"PAR1")
    return StagedFile(mark, rows, {"add": add})


def find(session: SparkSession, path: str, state: Snapshot) -> SparkDelta:
    """The table in a session.

    Raises:
        ConflictError: kind SCHEMA_CHANGED; the session sees another schema or partitioning than we do.
        StorageError: Spark cannot load it.
    """
    with spark_errors("load the table"):
        log = getattr(_jvm(session), f"{_DELTA}.DeltaLog").forTable(session._jsparkSession, path)  # noqa: SLF001
        none = _jvm(session).scala.Option.empty()
        snapshot = log.unsafeVolatileSnapshot()
        if not _same(snapshot, state):
            snapshot = log.update(False, none, none)
        if not _same(snapshot, state):
            raise ConflictError(
                "Another writer changed the table's schema or properties meanwhile. Nothing was committed. Call again with "
                "the same key.",
                kind=Kind.SCHEMA_CHANGED,
            )
        return SparkDelta(session, log, snapshot, unquote(str(log.dataPath().toUri().toString())).rstrip("/"))


def table_id_of(relation: Any) -> str | None:
    """The id of the Delta table that a relation of a plan reads; None if it reads something else."""
    if not str(relation.getClass().getName()).endswith(".LogicalRelation"):
        return None
    source = relation.relation()
    if not str(source.getClass().getName()).startswith(
        f"{_DELTA}."
    ):  # HadoopFsRelation, with Delta's own insert
        return None
    files = source.location()
    return str(files.metadata().id()) if str(files.getClass().getName()).startswith(f"{_DELTA}.") else None


def _same(snapshot: Any, state: Snapshot) -> bool:
    """Whether files are written for both in the same way."""
    said = json.loads(str(snapshot.metadata().json()))["metaData"]
    ours = state.metadata
    return all(_plain(said.get(name)) == _plain(ours.get(name)) for name in _LAYOUT)


_LAYOUT: Sequence[str] = ("id", "schemaString", "partitionColumns", "configuration")


def _plain(value: Any) -> Any:
    return json.loads(value) if isinstance(value, str) and value.startswith("{") else value or None


def _jvm(session: SparkSession) -> Any:
    return session.sparkContext._jvm  # noqa: SLF001 - as safewrite.delta.spark.session


__all__ = ["SparkDelta", "file_key", "find", "table_id_of"]
