"""Decides which tables safewrite may read and write: format versions, encryption, types and transforms that are known.

What a reader needs is asked when a table is opened, and again of each table version that is read.  What a writer needs besides is
asked before each write, and once more when a commit is asked for: a table can be upgraded at any time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, TypeAlias

from pyiceberg.transforms import UnknownTransform

from safewrite.errors import UnsupportedTableError
from safewrite.iceberg.data import locations, partitions
from safewrite.iceberg.data.schema import unread_columns
from safewrite.iceberg.metadata import table_of
from safewrite.values.unsupported import check_brought

if TYPE_CHECKING:
    from pyiceberg.table import Table
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.types import NestedField

    from safewrite.protocol.iceberg.head import TableVersion

READ_MAX, CHANGED_MAX = 3, 2
"""The newest format versions that are read and written to, and that executors apply changes to."""
ENCRYPTED = "encryption.key-id"
"""Table property that asks for encrypted files (Iceberg table encryption)."""

Rule: TypeAlias = Callable[["TableMetadata"], "str | None"]
"""Why a table cannot be read, or written to; None if nothing forbids it."""


def check_read(head: TableVersion) -> None:
    """Make sure that the rows of a table version are read as they are.

    Raises:
        UnsupportedTableError: by the name of every feature that readers would have to know; or a location or partition values that
            PyIceberg reads as others.
    """
    table = table_of(head)
    reasons = unreadable(table.metadata)
    if reasons:
        raise UnsupportedTableError(
            f"safewrite does not read {_named(table)}: {listed(reasons)}. Nothing was read or written. {advice(reasons)}"
        )
    locations.check(table.metadata, _named(table))
    partitions.check(table.metadata.specs().values(), table.metadata.schema())


def check_write(head: TableVersion) -> None:
    """Make sure that a table version may be written to.

    Raises:
        UnsupportedTableError: as :func:`check_read`; or by the name of every feature that writers would have to know.
    """
    check_read(head)
    check_commit(head, keeps_ids=True)


def check_commit(head: TableVersion, *, keeps_ids: bool) -> None:
    """Make sure that a commit may be asked for, whoever made it: PyIceberg's own calls know where its files go.

    ``keeps_ids``: rows that move keep the ids of format version 3.

    Raises:
        UnsupportedTableError: by the name of every feature that writers would have to know.
    """
    table = table_of(head)
    check_landing(table.metadata, _named(table), keeps_ids=keeps_ids)


def check_landing(metadata: TableMetadata, name: str, *, keeps_ids: bool) -> None:
    """As :func:`check_commit`, of the metadata that a commit lands on."""
    reasons = unwritable(metadata, keeps_ids=keeps_ids)
    if reasons:
        raise UnsupportedTableError(
            f"safewrite cannot write this to {name}: {listed(reasons)}. Nothing was written. {advice(reasons)}"
        )


def check_frame(head: TableVersion, names: Callable[[], Iterable[str]], *, rewrites: bool) -> None:
    """Make sure that a frame with columns of these ``names`` may be written; ``rewrites``: as changes.

    Raises:
        UnsupportedTableError: as :func:`check_commit` and :func:`check_rewrites`.
        InvalidInputError: names a column whose values are not written.
    """
    check_commit(head, keeps_ids=True)
    check_brought(unread(table_of(head).metadata), names)
    if rewrites:
        check_rewrites(head)


def check_rewrites(head: TableVersion) -> None:
    """Make sure that rows of a table version may be written to other files, with all that they have.

    Raises:
        UnsupportedTableError: by the columns whose values cannot be carried over.
    """
    table = table_of(head)
    reasons = keeps_files(table.metadata)
    if reasons:
        raise UnsupportedTableError(
            f"safewrite cannot write rows of {_named(table)} again: {listed(reasons)}. Nothing was written. {advice(reasons)}"
        )


def keeps_files(metadata: TableMetadata) -> Mapping[str, str]:
    """Why no row may be written again, by feature; {} where they may."""
    return _against(metadata, KEEPING_RULES)


def unreadable(metadata: TableMetadata) -> Mapping[str, str]:
    """Why the rows may not be read, by feature; {} where they may."""
    return _against(metadata, READING_RULES)


def unwritable(metadata: TableMetadata, *, keeps_ids: bool = True) -> Mapping[str, str]:
    """Why nothing may be written to the table, by feature; {} where it may.  ``keeps_ids``: by what keeps the ids of rows."""
    return _against(metadata, RULES if keeps_ids else CHANGE_RULES)


def unread(metadata: TableMetadata) -> Mapping[str, str]:
    """The columns that are not read, each with the reason; the others are."""
    return unread_columns(metadata.schema())


def listed(reasons: Mapping[str, str]) -> str:
    """Features and reasons as part of a sentence."""
    return "; ".join(f"{name}: {why}" for name, why in reasons.items())


def advice(reasons: Mapping[str, str]) -> str:
    """What to do about features that forbid something: who turns each on, and the way out."""
    return " ".join(WAYS_OUT[name] for name in reasons)


def _against(metadata: TableMetadata, rules: Mapping[str, Rule]) -> dict[str, str]:
    return {name: why for name, rule in rules.items() if (why := rule(metadata))}


def _named(table: Table) -> str:
    return ".".join(table.name()) or "this table"


# --- rules ------------------------------------------------------------------------------------------
def _newer(metadata: TableMetadata) -> str | None:
    version = int(metadata.format_version)
    return (
        f"the table has format version {version}, safewrite reads 1 to {READ_MAX}"
        if version > READ_MAX
        else None
    )


def _unnumbered(metadata: TableMetadata) -> str | None:
    """Why the format version forbids it: from 3 on each commit gives ids to rows, from where the table says."""
    version = int(metadata.format_version)
    if version <= CHANGED_MAX or version > READ_MAX:
        return _newer(metadata)
    from safewrite.iceberg.data.manifests_v3 import why_unnumbered

    why = why_unnumbered(metadata)
    return None if why is None else f"the table has format version {version}, and {why}"


def _format(metadata: TableMetadata) -> str | None:
    """Why the format version forbids changes by executors and by others: rows that are copied would lose their ids."""
    version = int(metadata.format_version)
    return _unnumbered(metadata) or (
        f"the table has format version {version}, and safewrite does not do this to such tables yet: rows that are kept have ids that "
        "go with them"
        if version > CHANGED_MAX
        else None
    )


def _encrypted(metadata: TableMetadata) -> str | None:
    return f"its files are encrypted ({ENCRYPTED})" if metadata.properties.get(ENCRYPTED) else None


def _transforms(metadata: TableMetadata) -> str | None:
    """Why a partition field forbids it whose transform is not known: nothing tells of what type its values are in the manifests."""
    found = [
        field.name
        for spec in metadata.partition_specs
        for field in spec.fields
        if isinstance(field.transform, UnknownTransform)
    ]
    return (
        f"nothing says of what type its partition values {', '.join(dict.fromkeys(found))} are"
        if found
        else None
    )


def _types(metadata: TableMetadata) -> str | None:
    """Why columns forbid it whose values are not known: no file could do without one that must not be NULL.

    A column of type ``unknown`` has no values, and no file has it; inside of other columns that is not done, nor is a table of such alone.
    """
    from pyiceberg.types import UnknownType

    others = unread(metadata)
    tops = {one.field_id for one in metadata.schema().fields}
    alone = all(
        isinstance(one.field_type, UnknownType) or one.name in others for one in metadata.schema().fields
    )
    found = [
        *(one.name for one in metadata.schema().fields if one.name in others and (one.required or alone)),
        *_fields(
            metadata,
            lambda field: isinstance(field.field_type, UnknownType) and (alone or field.field_id not in tops),
        ),
    ]
    return (
        f"values would have to be written to {', '.join(found)}, of a type that is not known"
        if found
        else None
    )


def _types_kept(metadata: TableMetadata) -> str | None:
    """Why such columns forbid that rows are written again; those of new rows do without, which is NULL."""
    found = unread(metadata)
    return (
        f"values of {', '.join(found)} would have to be carried along, of a type that is not known"
        if found
        else None
    )


def _names(metadata: TableMetadata) -> str | None:
    """Why columns of before an upgrade forbid it: files have columns of these names for the ids of rows."""
    from safewrite.iceberg.data.lineage import NAMES

    found = [name for name in metadata.schema().column_names if name in NAMES]
    newer = metadata.format_version > CHANGED_MAX
    return (
        f"{', '.join(found)} would have to stand beside row ids, which have this name"
        if newer and found
        else None
    )


def _fields(metadata: TableMetadata, those: Callable[[NestedField], bool]) -> list[str]:
    """The names of fields of the current schema, at any level."""
    if metadata.format_version <= CHANGED_MAX:
        return []
    from pyiceberg.schema import index_by_id

    schema = metadata.schema()
    found = [number for number, field in index_by_id(schema).items() if those(field)]
    return [schema.find_column_name(number) or str(number) for number in found]


READING_RULES: Mapping[str, Rule] = {
    "format version": _newer,
    "encryption": _encrypted,
    "transforms": _transforms,
}
"""What readers must know, and how its use is found."""

RULES: Mapping[str, Rule] = {
    **READING_RULES,
    "format version": _unnumbered,
    "types": _types,
    "names": _names,
}
"""As READING_RULES, for writers that keep ids of rows."""

CHANGE_RULES: Mapping[str, Rule] = {**RULES, "format version": _format}
"""As RULES, for all other writers."""

KEEPING_RULES: Mapping[str, Rule] = {"types": _types_kept}
"""As RULES, of columns that new rows may do without, and whose values cannot be carried into other files."""

_COPY = "copy the rows to a table without it, or write with the engine that made it"
WAYS_OUT: Mapping[str, str] = {
    "format version": "format version: engines upgrade to 3 where they are asked to (Spark, Glue and EMR by 'format-version' = '3'), and "
    "some make such tables by themselves (debezium-server-iceberg, Snowflake where ICEBERG_VERSION_DEFAULT says so, Foundry where files "
    "are encrypted). No engine takes it back: change rows with the one that made it, or copy them to a new table: CREATE TABLE t2 USING "
    "iceberg TBLPROPERTIES ('format-version' = '2') AS SELECT * FROM t.",
    "encryption": f"encryption: its owner set {ENCRYPTED}. Read and write this table with Spark, which asks for the keys.",
    "transforms": "transforms: a newer engine made them. Take a newer version of PyIceberg and safewrite, or read and write the table with "
    "that engine.",
    "names": "names: rename the column: ALTER TABLE t RENAME COLUMN _row_id TO row_id.",
    "types": "types: rows without such a column are appended where it may be NULL, and rows are deleted and overwritten by a condition. For "
    f"all else {_COPY}.",
}
"""Who turns a feature on, and what lets safewrite write (or read) the table."""
