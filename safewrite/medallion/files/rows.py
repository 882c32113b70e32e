"""Makes bronze rows of a file's records: types, operation, place in the order; what cannot be taken is kept apart."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from safewrite.errors import InvalidInputError
from safewrite.intake.partitioning import NOT_READ_BACK, of_no_folder
from safewrite.medallion.config.bronze_columns import (
    BRONZE_COLUMNS,
    FILE,
    LOADED_OP,
    OLD,
    UNCHANGED,
    UNCHANGED_FIELD,
)
from safewrite.medallion.config.commit_columns import commit_fields, commit_values
from safewrite.medallion.config.job import TableConfig
from safewrite.medallion.config.stored_names import stored
from safewrite.medallion.files.layout import SourceFile
from safewrite.medallion.files.records import BadRecord, Records
from safewrite.medallion.files.text_parsing import called, plain_value, read
from safewrite.medallion.files.unavailable_values import is_said, listed

_SEQ = pa.decimal128(38, 0)
_BELOW_ALL = pa.scalar(10**36, pa.decimal128(37, 0))
"""Rows of a full load count up from minus this, and so are older than every change."""
OPS = {"all": ["I", "U", "D"], "inserts": ["I"], "inserts_and_updates": ["I", "U"]}
"""The operations of change files, by ``files.changes``.  Of files without the column every change has the last one: silver takes an
update of a key that it has no row of as an insert."""
LINE_DIGITS = 14
"""Of the sequence of a change that is ordered by its file: above them is the number of the file."""
_PER_MS = 10**19
"""What a millisecond is worth in the sequence of a full load: below it are the file's number and the line."""

Span = tuple[Decimal, Decimal]


@dataclass(frozen=True)
class BronzeRows:
    """What becomes of a file: ``rows`` for bronze, ``bad`` for quarantine."""

    source: SourceFile
    tag: str
    rows: pa.Table
    bad: list[BadRecord] = field(default_factory=list)

    @property
    def count(self) -> int:
        """How many rows there are for bronze."""
        return int(self.rows.num_rows)

    @property
    def span(self) -> Span | None:
        """See :func:`span_of`."""
        return span_of(self.rows)

    def again(self) -> BronzeRows:
        """The rows in this process: itself."""
        return self


class FileRows(Protocol):
    """What becomes of a file, wherever its rows are."""

    @property
    def source(self) -> SourceFile: ...
    @property
    def tag(self) -> str: ...
    @property
    def bad(self) -> list[BadRecord]: ...
    @property
    def count(self) -> int: ...
    @property
    def span(self) -> Span | None: ...
    def again(self) -> BronzeRows:
        """The rows in this process.  Raises as when they were read first."""


def span_of(rows: pa.Table) -> Span | None:
    """The least and the greatest place in the order; None without rows."""
    if not rows.num_rows:
        return None
    ends = pc.min_max(rows["_seq"]).as_py()
    return ends["min"], ends["max"]


def bronze_schema(table: TableConfig, columns: pa.Schema) -> pa.Schema:
    """The columns of bronze as its table calls them: those of the source, the old keys, and where a row comes from."""
    own = [pa.field(one.name, one.type) for one in columns]
    old = (
        [pa.field(OLD + key, columns.field(key).type) for key in table.keys]
        if table.files.before_image
        else []
    )
    more = [UNCHANGED_FIELD] if table.files.no_sup_value is not None else []
    place = [one.with_name(stored(one.name, table.format)) for one in BRONZE_COLUMNS]
    return pa.schema([*own, *old, *more, *place, *commit_fields(table.partition_by.bronze, None)])


class _Faults:
    """Which records are bad, and why: the first reason of each counts."""

    def __init__(self, records: Records) -> None:
        self.records = records
        self.reasons: dict[int, str] = {}

    def note(self, bad: npt.NDArray[np.bool_], reason: str, value: pa.ChunkedArray | None = None) -> None:
        for row in np.flatnonzero(bad).tolist():
            if row not in self.reasons:
                shown = f": {_short(plain_value(value, row))}" if value is not None else ""
                self.reasons[row] = reason + shown

    def good(self) -> npt.NDArray[np.bool_]:
        good = np.ones(len(self.records.lines), np.bool_)
        good[list(self.reasons)] = False
        return good

    def bad(self) -> list[BadRecord]:
        found = [
            BadRecord(int(self.records.lines[row]), reason, self.records.text(row))
            for row, reason in self.reasons.items()
        ]
        return sorted([*self.records.bad, *found], key=lambda one: one.line)


def _short(value: object) -> str:
    text = value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else str(value)
    return repr(text if len(text) <= 80 else text[:77] + "...")


def bronze_rows(
    source: SourceFile,
    tag: str,
    records: Records,
    table: TableConfig,
    columns: pa.Schema,
    *,
    owner_columns: Sequence[str] = (),
) -> BronzeRows:
    """Read the records of one file of a table; ``owner_columns`` names columns that only tell whose record it is.

    Raises:
        InvalidInputError: the file has other columns than the table.
    """
    check_columns(source, records.rows.column_names, table, columns, owner_columns)
    faults = _Faults(records)
    count = len(records.lines)
    ops = _ops(source, records, table, faults)
    needs_key_only = np.asarray(pc.equal(ops, "D").fill_null(False).to_numpy(), np.bool_)
    records, lacking = _without_lacking(records, table, columns, ops)
    brought = frozenset(records.rows.column_names)
    found = {
        one.name: _column(
            records, one.name, one.type, faults, forgiven=None if one.name in table.keys else needs_key_only
        )
        if one.name in brought
        else pa.chunked_array([pa.nulls(count, one.type)])
        for one in columns
    }
    if table.files.before_image:
        for key in table.keys:
            found[OLD + key] = _old_key(records, table, columns.field(key), ops, faults)
    found[UNCHANGED] = listed(lacking, count)
    found["_op"] = ops
    for key in table.keys:
        faults.note(_mask(pc.is_null(found[key])), f"the key {key} is NULL")
    for name, is_needed in _folders(table, columns, needs_key_only).items():
        faults.note(of_no_folder(found[name]) & is_needed, f"{name} {NOT_READ_BACK}", found[name])
    found["_epoch"] = pa.chunked_array([pa.array(np.full(count, table.epoch, np.int64))])
    found["_seq"] = _sequence(source, records, table, faults)
    found["_commit_time"] = _commit_time(records, table, faults)
    found[stored(FILE, table.format)] = pa.chunked_array([pa.array([source.path] * count, pa.string())])
    found["_tag"] = pa.chunked_array([pa.array([tag] * count, pa.string())])
    found["_line"] = pa.chunked_array([pa.array(records.lines)])
    schema = bronze_schema(table, columns)
    for one in commit_fields(table.partition_by.bronze, None):
        found[one.name] = commit_values(found["_commit_time"], one)
    rows = pa.table([found[name] for name in schema.names], names=schema.names)
    return BronzeRows(source, tag, rows.filter(pa.array(faults.good())).cast(schema), faults.bad())


def _folders(
    table: TableConfig, columns: pa.Schema, deletes: npt.NDArray[np.bool_]
) -> dict[str, npt.NDArray[np.bool_]]:
    """The columns whose values name folders of a Delta table, and which records write one: a delete takes a row out of silver."""
    if table.format != "delta":
        return {}
    own, by = frozenset(columns.names), table.partition_by
    silver = {name: ~deletes for name in by.silver if name in own}
    return silver | {name: np.ones_like(deletes) for name in by.bronze if name in own}


def _without_lacking(
    records: Records, table: TableConfig, columns: pa.Schema, ops: pa.ChunkedArray
) -> tuple[Records, dict[str, npt.NDArray[np.bool_]]]:
    """The records with NULL for what the log lacks, and of which columns each update brings no value."""
    no_value = table.files.no_sup_value
    if no_value is None:
        return records, {}
    may_lack = np.asarray(pc.is_in(ops, value_set=pa.array(["U", "D"])).to_numpy(), np.bool_)
    updates = np.asarray(pc.equal(ops, "U").fill_null(False).to_numpy(), np.bool_)
    rows, lacking = records.rows, {}
    brought, own = frozenset(rows.column_names), frozenset(columns.names) - frozenset(table.keys)
    before = [table.files.before_image + key for key in table.keys] if table.files.before_image else []
    for name in [*columns.names, *before]:
        if name not in brought:
            continue
        flags = is_said(rows[name], no_value) & may_lack
        if flags.any():
            place = rows.column_names.index(name)
            kept = pc.if_else(pa.array(flags), pa.scalar(None, rows[name].type), rows[name])
            rows = rows.set_column(place, name, kept)
            if name in own:
                lacking[name] = flags & updates
    return replace(records, rows=rows), lacking


def all_bad(source: SourceFile, tag: str, records: Records, reason: str) -> list[BadRecord]:
    """Every record of a file, which is not taken as a whole."""
    faults = _Faults(records)
    faults.note(np.ones(len(records.lines), np.bool_), reason)
    return faults.bad()


def check_columns(
    source: SourceFile,
    found: Sequence[str],
    table: TableConfig,
    columns: pa.Schema,
    owner_columns: Sequence[str] = (),
) -> None:
    """Refuse a file with other columns than the table has: neither drop one in silence nor fill one with NULL.

    Raises:
        InvalidInputError: the columns are named.
    """
    files = table.files
    needed = set(columns.names) | {name for name in (files.timestamp, files.change_seq) if name}
    allowed = needed | {*files.ignore, *owner_columns}
    if files.has_op(is_load=source.is_load):
        needed.add(files.op)
    elif not source.is_load:
        allowed.add(files.op)
    if source.is_load:  # columns that DMS fills from the log may be left out of a full load
        needed -= {name for name in (files.timestamp, files.change_seq) if name}
    allowed |= needed
    if files.before_image:
        allowed |= {files.before_image + name for name in columns.names}
    missing, unknown = sorted(needed - set(found) - set(files.optional)), sorted(set(found) - allowed)
    if missing or unknown:
        alike = [f"{one} for {name}" for one in unknown for name in missing if one.lower() == name.lower()]
        case = (
            f" Names that differ by case alone are others: the file has {', '.join(alike)}." if alike else ""
        )
        raise InvalidInputError(
            f"{source.path} has other columns than the table: missing {missing}, not known {unknown}. Nothing of it was "
            f"written, and nothing of the files that came with it.{case} Declare new columns in columns, or leave them out by "
            "files.ignore. Name columns that files may lack in files.optional, which means NULL; else mend the file."
        )


def _column(
    records: Records,
    name: str,
    kind: pa.DataType,
    faults: _Faults,
    *,
    forgiven: npt.NDArray[np.bool_] | None = None,
) -> pa.ChunkedArray:
    """A column's values; ``forgiven`` rows may have NULL for what cannot be read, as deletes do: their key is enough."""
    raw = records.rows.column(name)
    values, bad = read(raw, kind, texts=records.texts)
    faults.note(bad if forgiven is None else bad & ~forgiven, f"{name} is no {called(kind)}", raw)
    return values


def _old_key(
    records: Records, table: TableConfig, key: pa.Field, ops: pa.ChunkedArray, faults: _Faults
) -> pa.ChunkedArray:
    """The value of a key before an update; NULL for other changes, for which DMS writes an empty text or NULL."""
    name = f"{table.files.before_image}{key.name}"
    if name not in records.rows.column_names:
        return pa.chunked_array([pa.nulls(len(records.lines), key.type)])
    raw = records.rows.column(name)
    has_one = pc.equal(ops, "U")
    if records.texts and table.files.op not in records.rows.column_names:  # which may be an insert
        has_one = pc.and_(has_one, pc.not_equal(raw, b""))
    place = records.rows.column_names.index(name)
    kept = pc.if_else(pc.fill_null(has_one, False), raw, pa.scalar(None, raw.type))
    return _column(replace(records, rows=records.rows.set_column(place, name, kept)), name, key.type, faults)


def _ops(source: SourceFile, records: Records, table: TableConfig, faults: _Faults) -> pa.ChunkedArray:
    if source.is_load and not table.files.op_in_full_load:
        return pa.chunked_array([pa.array([LOADED_OP] * len(records.lines), pa.string())])
    written = OPS[table.files.changes]
    if table.files.op not in records.rows.column_names:
        return pa.chunked_array([pa.array([written[-1]] * len(records.lines), pa.string())])
    raw = records.rows.column(table.files.op)
    ops, bad = read(raw, pa.string(), texts=records.texts)
    allowed = pa.array(["I"] if source.is_load else written)
    unknown = _mask(pc.invert(pc.is_in(ops, value_set=allowed)))
    faults.note(bad | unknown, f"the operation is none of {', '.join(allowed.to_pylist())}", raw)
    return pa.chunked_array([pa.array([LOADED_OP] * len(ops), pa.string())]) if source.is_load else ops


def _commit_time(records: Records, table: TableConfig, faults: _Faults) -> pa.ChunkedArray:
    kind = BRONZE_COLUMNS.field("_commit_time").type
    name = table.files.timestamp
    if name is None or name not in records.rows.column_names:
        return pa.chunked_array([pa.nulls(len(records.lines), kind)])
    return _column(records, name, kind, faults)


def as_landed(one: BronzeRows, epoch: int, changed_ms: int) -> BronzeRows:
    """The rows as they were landed, under another epoch or, of a full load, from a file of another time."""
    rows = one.rows.set_column(
        one.rows.column_names.index("_epoch"),
        BRONZE_COLUMNS.field("_epoch"),
        pa.array(np.full(one.rows.num_rows, epoch, np.int64)),
    )
    if one.source.is_load:
        earlier = pa.scalar(
            (_head_ms(changed_ms) - _head_ms(one.source.raw.changed_ms)) * _PER_MS, pa.decimal128(36, 0)
        )
        moved = pc.add(rows["_seq"].cast(pa.decimal128(37, 0)), earlier).cast(_SEQ)
        rows = rows.set_column(rows.column_names.index("_seq"), BRONZE_COLUMNS.field("_seq"), moved)
    return replace(one, rows=rows)


def loaded_ms(sequence: Decimal) -> int:
    """When the file of a full load was written that a row with this sequence comes from; 0 for a change."""
    return (int(sequence) + int(_BELOW_ALL.as_py())) // _PER_MS if sequence < 0 else 0


def _head_ms(changed_ms: int) -> int:
    return min(max(changed_ms, 0), 10**13 - 1)


def _sequence(source: SourceFile, records: Records, table: TableConfig, faults: _Faults) -> pa.ChunkedArray:
    lines = pa.array(records.lines).cast(pa.string())
    if source.is_load:
        # Later written files of a load are newer, then by number and line: a load that was begun again wins over the first.
        head = f"{_head_ms(source.raw.changed_ms):d}{source.number:010d}"
        rank = _joined(head, lines, 9).cast(pa.decimal128(36, 0))
        return pa.chunked_array([pc.subtract(rank, _BELOW_ALL).cast(_SEQ)])
    if table.files.change_seq is None:
        return pa.chunked_array([_joined(f"{source.number:018d}", lines, LINE_DIGITS).cast(_SEQ)])
    raw = records.rows.column(table.files.change_seq)
    values, bad = read(raw if records.texts else raw.cast(pa.string()), _SEQ, texts=records.texts)
    negative = _mask(pc.fill_null(pc.less(values, pa.scalar(0, _SEQ)), True))
    faults.note(bad | negative, f"{table.files.change_seq} is no number from 0", raw)
    return values


def _joined(head: str, lines: pa.Array, digits: int) -> pa.Array:
    return pc.binary_join_element_wise(head, pc.utf8_lpad(lines, digits, "0"), "")


def _mask(values: pa.Array | pa.ChunkedArray) -> npt.NDArray[np.bool_]:
    return np.asarray(pc.fill_null(values, True).to_numpy(), np.bool_)
