"""Has Iceberg's own Java library write data files in Spark, and commits none of them.

Iceberg rewrites files (compaction) in two halves: Spark writes new ones and leaves their list with a
coordinator in the driver, and another party commits them.  Safewrite is that party.  It uses the first half
as it is, by its public classes, so a batch costs the table no commit, branch or snapshot besides its own.
"""

from __future__ import annotations

import json
import logging
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa

from safewrite.engine.spark import is_connect
from safewrite.errors import InvalidInputError, MissingExtraError, StorageError
from safewrite.frames.spark.columns import arrow_schema, conformed
from safewrite.frames.spark.computed_frame import active
from safewrite.frames.spark.hashes import quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_CATALOG = "spark.sql.catalog."
_CLASSES = ("org.apache.iceberg.spark.SparkCatalog", "org.apache.iceberg.spark.SparkSessionCatalog")
_OF_ICEBERG = "default_iceberg"
"""A catalog in the Hive metastore that Iceberg's library adds to a session by itself; few have such a store."""
_MANIFEST_VERSION = 2
_PIECE_BYTES = 5 * 1024
"""The size of a piece: as text, with a third more, it is less than py4j sends at once."""

log = logging.getLogger("safewrite")

Layout: TypeAlias = tuple[str, int, int, int]
"""A table's UUID, and the ids of its schema, partitioning and sort order."""


@dataclass(frozen=True)
class SparkIceberg:
    """A table as the session's Iceberg library has loaded it.

    ``metadata`` is the table version that was looked at.  It stays as it is, while the session's other
    readers and writers share ``table``, and any of them may refresh it to a later version.
    """

    session: SparkSession
    table: Any
    metadata: Any
    name: str
    catalog: str

    @cached_property
    def schema(self) -> pa.Schema:
        """The columns as Spark sees them, in Arrow."""
        from pyspark.sql.types import StructType

        kind = self.java("spark.SparkSchemaUtil").convert(self.metadata.schema())
        return arrow_schema(StructType.fromJson(json.loads(kind.json())))

    @cached_property
    def layout(self) -> Layout:
        """The table that files are written for, and the schema, partitioning and sort order."""
        return _layout(self.metadata)

    @cached_property
    def location(self) -> str:
        """The location of the metadata file that was looked at."""
        return _location(self.metadata)

    def layout_now(self) -> Layout:
        """The layout that the session goes by now."""
        metadata = _metadata(self.table)
        return self.layout if _location(metadata) == self.location else _layout(metadata)

    def is_of(self, session: SparkSession) -> bool:
        """Whether the session is the table's; each batch of a stream comes with another Python object for it."""
        known = self.session
        if known.sparkContext is not session.sparkContext:
            return False
        return bool(known._jsparkSession.equals(session._jsparkSession))  # noqa: SLF001 - Java knows

    def new_columns(self, frame: DataFrame) -> pa.Schema:
        """The columns of a frame that the table does not have.

        Raises:
            WouldAlterError, InvalidInputError: the others do not fit.
        """
        return pa.schema(conformed(frame, self.schema, schema_mode="merge").added)

    def write(self, frame: DataFrame) -> bytes:
        """Write the rows; returns a manifest of the new files.

        Raises:
            StorageError: Spark could not write them; nothing was committed.
        """
        from py4j.protocol import Py4JError  # type: ignore[import-untyped]
        from pyspark.errors import PySparkException

        with self._group() as (group, coordinator):
            writer = frame.write.format("iceberg").mode("append")
            # Iceberg before 1.12 goes by this option, later versions by the group's place in the cache.
            writer = writer.option("rewritten-file-scan-task-set-id", group)
            # The rows were searched for NULL; what their plan says of it does not matter.
            writer = writer.option("check-nullability", str(self._nested_required()).lower())
            try:
                writer.save(group)
                return self._manifest(coordinator, group)
            except (PySparkException, Py4JError) as error:
                raise StorageError(
                    f"Spark could not write the data files of {self.name}: {_said(error)}. Nothing was committed. If it "
                    "was the environment, call again with the same key."
                ) from error

    def java(self, name: str) -> Any:
        """A class of Iceberg's, by its name beneath ``org.apache.iceberg``."""
        return _class(self.session, name)

    @contextmanager
    def _group(self) -> Iterator[tuple[str, Any]]:
        """Announce a group of files to the coordinator, and forget it in the end."""
        group = f"safewrite-{uuid.uuid4()}"
        coordinator = self.java("spark.FileRewriteCoordinator").get()
        cache = self.cache
        cache.add(group, self.table)
        try:
            yield group, coordinator
        finally:
            cache.remove(group)
            coordinator.clearRewrite(self.table, group)

    @property
    def cache(self) -> Any:
        """``SparkTableCache.get()``: py4j takes the static one or another ``get``, as Java happens to list them."""
        from py4j.java_gateway import JavaMember  # type: ignore[import-untyped]

        client = self.session.sparkContext._gateway._gateway_client  # type: ignore[union-attr]  # noqa: SLF001
        return JavaMember("get", None, "z:org.apache.iceberg.spark.SparkTableCache", client)()

    def _manifest(self, coordinator: Any, group: str) -> bytes:
        body = self.java("inmemory.InMemoryOutputFile")("files.avro")
        writer = self.java("ManifestFiles").write(_MANIFEST_VERSION, self.metadata.spec(), body, None)
        writer.addAll(coordinator.fetchNewFiles(self.table, group))
        writer.close()
        return b"".join(_pieces(body.toInputFile().newStream()))

    def _nested_required(self) -> bool:
        return any(_has_required(field.type) for field in self.schema)


def find(
    session: SparkSession,
    identifier: tuple[str, ...],
    table_id: str,
    location: str,
    *,
    named: str | None,
    likely: str,
) -> SparkIceberg:
    """The table in the session's catalog ``named``, or in the first that knows a table of this UUID.

    Its version is that of the metadata file at ``location``, or a later one.

    Raises:
        InvalidInputError: there is none.
        MissingExtraError: the session has no Iceberg.
    """
    tried = []
    for name in _catalogs(session, named, likely):
        found = _load(session, name, identifier, location)
        if isinstance(found, SparkIceberg) and found.layout[0] == table_id:
            return found
        tried.append(f"{name} ({found if isinstance(found, str) else 'another table of that name'})")
    raise InvalidInputError(
        f"The Spark session does not know {'.'.join(identifier)}: {'; '.join(tried) or 'it has no Iceberg catalog'}. "
        "Nothing was written. Set up the same catalog in the session (safewrite.spark.conf(iceberg={...})), and say "
        "spark_catalog= if several could be it."
    )


def has_library(session: SparkSession) -> bool:
    """Whether the session has Iceberg's jar."""
    return not is_connect(session) and type(_class(session, "spark.Spark3Util")).__name__ == "JavaClass"


def _catalogs(session: SparkSession, named: str | None, likely: str) -> Iterator[str]:
    """The catalogs to look in, the likely one first: listing them all takes Java a while."""
    if named is not None:
        yield named
        return
    if likely and session.conf.get(_CATALOG + likely, None) in _CLASSES:
        yield likely
    settings = {key: value for key, value in _settings(session).items() if key.startswith(_CATALOG)}
    known = [key.removeprefix(_CATALOG) for key, value in settings.items() if value in _CLASSES]
    yield from sorted((name for name in known if name != likely), key=lambda name: name == _OF_ICEBERG)


def _load(
    session: SparkSession, catalog: str, identifier: tuple[str, ...], location: str
) -> SparkIceberg | str:
    """The table, or why not."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    util = _class(session, "spark.Spark3Util")
    if not has_library(session):
        raise MissingExtraError(
            "This Spark session runs without Iceberg's jar. Nothing was written. Start it with the settings of "
            "safewrite.spark.conf(iceberg={...}, jars=...)."
        )
    name = _name(catalog, identifier)
    try:
        with active(session):  # Iceberg's library looks for its catalogs there
            table = util.loadIcebergTable(session._jsparkSession, name)  # noqa: SLF001
            if _location(_metadata(table)) != location:
                table.refresh()  # the session may remember an older version
            return SparkIceberg(session, table, _metadata(table), name, catalog)
    except (PySparkException, Py4JError) as error:
        return _said(error)


def forget(session: SparkSession, identifier: tuple[str, ...]) -> None:
    """Let the session's next reader ask the catalog: what its Iceberg catalogs keep of a table is from before the commit."""
    if not has_library(session):
        return
    jvm: Any = session.sparkContext._jvm  # noqa: SLF001 - as safewrite.delta.spark.session
    java = session._jsparkSession  # noqa: SLF001
    loaded = java.sessionState().catalogManager().listCatalogs(jvm.scala.Option.empty())
    for number in range(loaded.size()):
        catalog = str(loaded.apply(number))
        if session.conf.get(_CATALOG + catalog, None) not in _CLASSES:
            continue
        name = _name(catalog, identifier)
        try:
            found = _class(session, "spark.Spark3Util").catalogAndIdentifier(java, name)
            found.catalog().invalidateTable(found.identifier())
        except Exception as error:  # noqa: BLE001 - the commit stands
            log.info("the session may go on with an older state of %s for a while: %s", name, _said(error))


def _name(catalog: str, identifier: tuple[str, ...]) -> str:
    return ".".join(map(quoted, (catalog, *identifier)))


def _pieces(stream: Any) -> Iterator[bytes]:
    """Java's stream, in pieces: a py4j answer beyond 8 KB waits for TCP's delayed acknowledgement, 40 ms."""
    while piece := bytes(stream.readNBytes(_PIECE_BYTES)):
        yield piece


def _metadata(table: Any) -> Any:
    """The metadata that Java has loaded last."""
    return table.operations().current()


def _location(metadata: Any) -> str:
    return str(metadata.metadataFileLocation())


def _layout(metadata: Any) -> Layout:
    ids = metadata.currentSchemaId(), metadata.defaultSpecId(), metadata.defaultSortOrderId()
    schema, spec, order = map(int, ids)
    return str(metadata.uuid()), schema, spec, order


def _class(session: SparkSession, name: str) -> Any:
    """A class of Iceberg's, by its whole name: py4j asks Java about each dot of a path."""
    return getattr(session.sparkContext._jvm, f"org.apache.iceberg.{name}")  # noqa: SLF001 - as safewrite.delta.spark.session


def _settings(session: SparkSession) -> dict[str, str]:
    """All settings of the session; PySpark 3.5 has no ``conf.getAll`` yet, and its Scala is older."""
    found = session._jsparkSession.conf().getAll()  # noqa: SLF001
    jvm: Any = session.sparkContext._jvm  # noqa: SLF001
    return dict(jvm.scala.collection.JavaConverters.mapAsJavaMap(found))


def _said(error: Exception) -> str:
    """The first line of what Java said."""
    return str(getattr(error, "java_exception", error)).partition("\n")[0]


def _has_required(kind: pa.DataType) -> bool:
    """Whether something in a nested type must not be NULL, keys of maps apart."""
    if pa.types.is_struct(kind):
        fields = [kind.field(number) for number in range(kind.num_fields)]
    elif pa.types.is_list(kind):
        fields = [kind.value_field]
    elif pa.types.is_map(kind):
        fields = [kind.item_field]
    else:
        return False
    return any(not field.nullable or _has_required(field.type) for field in fields)
