"""Makes rows of changes: keys, names, values that a source left out; what has no place becomes a dead letter.

Nothing here knows the types of the table's columns yet; ``safewrite.cdc.columns.frames`` does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from safewrite.cdc.config.column_rules import ColumnRules
from safewrite.cdc.config.own_columns import OF_FRAMES
from safewrite.cdc.connect.misfits import Misfit
from safewrite.cdc.connect.values import is_told
from safewrite.cdc.records.change import UNAVAILABLE, DeadLetter, Op, SourceChange, UndecodableError, left_out
from safewrite.cdc.records.change_set import POSITION
from safewrite.cdc.rows.project_columns import Projected
from safewrite.cdc.rows.record_metadata import metadata_of
from safewrite.values.python import is_nan


@dataclass(slots=True)
class ChangeRow:
    """One row of a frame of changes; a change of a key makes two.

    ``lacks`` names the columns whose values the source left out.  ``other`` is the key of the other half of a change of
    a key that came as a delete and an insert.  ``is_first`` is of a delete whose row stays: there is none before it.
    ``left`` is of a delete that was an upsert which the filter does not let pass.
    """

    op: Op
    values: dict[str, Any]
    change: SourceChange
    lacks: tuple[str, ...] = ()
    other: tuple[Any, ...] | None = None
    is_first: bool = False
    left: bool = False


class SchemaTypes(dict[str, dict[pa.DataType, str]]):
    """The types that schemas name for columns, each with the position of the newest change that came with it."""

    def learn(self, types: Mapping[str, pa.DataType], position: str) -> None:
        """Remember what the schema of a change says."""
        for name, kind in types.items():
            known = self.setdefault(name, {})
            if position >= known.get(kind, ""):
                known[kind] = position

    def add(self, other: SchemaTypes) -> None:
        """Take in what the schemas of further changes say."""
        for name, kinds in other.items():
            for kind, position in kinds.items():
                self.learn({name: kind}, position)

    def kinds(self, name: str) -> list[pa.DataType]:
        """The types of a column, that of the newest change last."""
        known = self.get(name, {})
        return sorted(known, key=lambda kind: (known[kind], str(kind)))

    def copy(self) -> SchemaTypes:
        return SchemaTypes({name: dict(kinds) for name, kinds in self.items()})


@dataclass
class ChangeRows:
    """Rows in the order of their source, and what they say of columns.

    ``types`` are those that schemas name, merged over all of them.
    """

    keys: tuple[str, ...] = ()
    rows: list[ChangeRow] = field(default_factory=list)
    types: SchemaTypes = field(default_factory=SchemaTypes)
    dead: list[DeadLetter] = field(default_factory=list)
    projected: list[Projected] = field(default_factory=list)
    """Changes that were read and projected as columns; none of them is in ``rows``."""

    @property
    def split(self) -> int:
        """How many rows there are beyond one for a change."""
        return len(self.rows) - len({id(row.change) for row in self.rows})


def rows_of(
    rules: ColumnRules,
    changes: Sequence[SourceChange],
    keys: tuple[str, ...] | None,
    *,
    carry: bool = True,
    projected: Sequence[Projected] = (),
    is_whole: bool = True,
) -> ChangeRows:
    """The rows of a table's changes.

    Args:
        keys: the key columns that the table has been using; None for a new one.
        carry: whether the table puts in values that the source left out; else a row that lacks one is a dead letter.
        projected: changes that were projected as columns already.
        is_whole: whether these are all changes of the batch; else others of it may tell the key of a table that is truncated.
    """
    table = rules.table
    made = ChangeRows(keys=keys or table.key, projected=list(projected))
    maker = _Maker(rules, made, carry and not table.has_versions)
    newest: dict[int, SourceChange] = {}
    """The newest change of each schema."""
    for part in projected:
        made.types.learn(part.types, pc.max(part.batch.data.column(POSITION)).as_py())
    for change in changes:
        known = newest.setdefault(id(change.types), change)
        if known is change:
            maker.learn(change.types, change.position)
        elif change.position > known.position:
            newest[id(change.types)] = change
        try:
            made.rows += maker.rows(change)
        except UndecodableError as error:
            made.dead.append(DeadLetter(change.record, str(error), table.name))
        except (ValueError, TypeError, ArithmeticError, AttributeError) as error:
            made.dead.append(DeadLetter(change.record, f"{type(error).__name__}: {error}", table.name))
    for change in newest.values():
        maker.learn(change.types, change.position)
    if is_whole and not made.keys and made.rows and not table.is_appended:
        why = "the key of the table is not known yet, so it cannot be truncated; name its primary_key in the configuration"
        made.dead += [DeadLetter(row.change.record, why, table.name) for row in made.rows]
        made.rows = []
    return made


class _Maker:
    def __init__(self, rules: ColumnRules, made: ChangeRows, carry: bool) -> None:
        table = rules.table
        self._rules, self._table = rules, table
        self._made = made
        self._carry = carry
        self._plain = not (
            table.leave_out
            or table.name_mapping
            or table.lower_case_names
            or table.timestamp_fields
            or table.decimal_fields
            or table.has_misfits
            or table.writes_shard
        )
        self._shard = table.shard_column if table.writes_shard else None
        self._source, self._is_nameless = "", False
        self._left_out = table.dropped
        self._names = table.own
        self._own = frozenset({*table.own_columns, *table.computed, *OF_FRAMES})
        self._only_read = frozenset(map(table.column_of, table.only_read))
        self._types: Mapping[str, pa.DataType] = {}
        """The types of the change's columns, as its schema names them."""

    def learn(self, types: Mapping[str, pa.DataType], position: str) -> None:
        """Remember what the schema of a change says of the columns."""
        for name, kind in types.items():
            if name not in self._left_out:
                self._has(name, self._rules.declared(name) or kind, position)

    def _has(self, name: str, kind: pa.DataType, position: str = "") -> None:
        self._made.types.learn({self._table.column_of(name): kind}, position)

    def rows(self, change: SourceChange) -> list[ChangeRow]:
        """One row, or two where the key changed: the old one goes."""
        if change.unordered is not None and self._table.sequence == "source" and not self._table.is_appended:
            raise UndecodableError(change.unordered)
        if self._table.is_appended:
            return [self._appended(change)]
        order = {self._names.epoch: self._table.epoch, self._names.sequence: change.position} | metadata_of(
            self._table, change
        )
        if change.op is Op.TRUNCATE:
            if self._table.sequence == "precombine":
                raise UndecodableError("a truncate has no columns that order it (precombine_key)")
            if self._table.keeps_deleted:
                raise UndecodableError(
                    "a truncate is of all rows, and those of this table stay; have the source delete them one by one"
                )
            if self._table.shard_column is not None:
                raise UndecodableError(
                    f"a truncate of {change.source} would take the rows of all sources of the table; delete those of this one by hand"
                )
            return [ChangeRow(Op.TRUNCATE, order, change)]
        self._types, self._source = change.types, str(change.source)
        self._is_nameless = change.is_tombstone and not change.source.database
        self._learn_key(change)
        before, after = self._named(change.before, is_whole=False), self._named(change.after)
        self._refuse_untold(change, before)
        key = self._key(change, before, after)
        if change.op is Op.DELETE:
            values = order | self._ordering_of_delete(before or {}) | key
            return [ChangeRow(Op.DELETE, values, change, other=self._other_key(change))]
        whole = {**(after or {}), **key}
        lacks = tuple(name for name, value in whole.items() if value is UNAVAILABLE)
        if lacks and not self._carry:
            raise UndecodableError(left_out(lacks, "and this batch has a change whose value nobody has"))
        whole |= dict.fromkeys(lacks)
        row = ChangeRow(Op.UPSERT, order | whole, change, lacks, self._other_key(change))
        self._ordering(whole)
        old = self._old_key(before, key)
        if old is None:
            return [row]
        return [ChangeRow(Op.DELETE, order | self._ordering(whole) | old, change), row]

    def _appended(self, change: SourceChange) -> ChangeRow:
        """A change as a row of its own: the row after it, or what it tells of the row before it."""
        self._types, self._source = change.types, str(change.source)
        self._is_nameless = change.is_tombstone and not change.source.database
        found = self._named(change.after if change.op is Op.UPSERT else change.before) or {}
        if change.op is not Op.UPSERT:
            keys = self._named(change.keys, is_whole=False) or {}
            if misfit := next((value for value in keys.values() if isinstance(value, Misfit)), None):
                raise misfit.refused()
            row = {name: None if value is UNAVAILABLE else value for name, value in found.items()}
            found = row | {name: value for name, value in keys.items() if row.get(name) is None}
        lacks = [name for name, value in found.items() if value is UNAVAILABLE]
        if lacks:
            raise UndecodableError(
                f"the source left out {', '.join(lacks)} because they did not change, and a row of its own has no row before it to "
                "take them from; have the source send rows whole (REPLICA IDENTITY FULL)"
            )
        return ChangeRow(Op.UPSERT, found | metadata_of(self._table, change), change)

    def _named(self, row: Mapping[str, Any] | None, *, is_whole: bool = True) -> dict[str, Any] | None:
        """A row under the table's names, its times and decimals read.

        Args:
            is_whole: whether all of its values are needed; else those that do not fit stay misfits.

        Raises:
            UndecodableError: a value that is needed does not fit, and on_misfit does not say what becomes of it.
        """
        if row is None:
            return None
        if (
            self._plain
            and row.keys().isdisjoint(self._own)
            and (not is_whole or Misfit not in set(map(type, row.values())))
        ):
            return dict(row)
        table, found = self._table, {}
        for name, value in row.items():
            if name in self._left_out:
                continue
            if value is not None and value is not UNAVAILABLE:
                try:
                    value = self._read(name, value)  # noqa: PLW2901
                except UndecodableError as error:
                    if is_whole:
                        raise
                    value = Misfit(value, str(error), None)  # noqa: PLW2901
            found[table.column_of(name)] = value
        if taken := self._own & set(found):
            raise UndecodableError(
                f"the source has columns that the job keeps ({', '.join(sorted(taken))}); map their names"
            )
        if len(found) < sum(name not in self._left_out for name in row):
            raise UndecodableError("two columns of the source get one name (name_mapping, lower_case_names)")
        if self._shard is None:
            return found
        if self._is_nameless:
            raise UndecodableError(
                "a tombstone whose delete did not come does not tell which source of the table it is of"
            )
        if self._shard in found:
            raise UndecodableError(
                f"the source has a column {self._shard!r}, in which the job writes the source's name (shard_column); name another, or "
                "make the source's column part of primary_key"
            )
        return {self._shard: self._source, **found}

    def _read(self, name: str, value: Any) -> Any:
        declared = self._rules.declared(name)
        if declared is not None:
            self._has(name, declared)
        is_key = self._table.column_of(name) in self._made.keys
        return self._rules.read(name, value, is_key=is_key, has_schema=name in self._types)

    # --- keys and order ---------------------------------------------------------------------------
    def _learn_key(self, change: SourceChange) -> None:
        """The key of a table that has none yet is that of the first record."""
        if self._made.keys:
            return
        given = self._named(change.keys, is_whole=False)
        if not given:
            why = "leave_out has all of the record's key" if change.keys else "the record has no key"
            raise UndecodableError(
                change.no_key or f"{why}, and the table no primary_key in the configuration"
            )
        self._made.keys = tuple(name for name in given if name not in self._only_read)

    def _key(self, change: SourceChange, before: Any, after: Any) -> dict[str, Any]:
        given: dict[str, Any] | None = None
        # The row's own values count where the record's key is another: of the rows of a changed key, for one.
        row = (after if change.op is Op.UPSERT else before) or {}
        found = {}
        for name in self._made.keys:
            value = row.get(name)
            if value is None or value is UNAVAILABLE or isinstance(value, Misfit):
                given = given or self._named(change.keys, is_whole=False) or {}
                value = given.get(name, value)
            if isinstance(value, Misfit):
                raise value.refused()
            if value is None or value is UNAVAILABLE:
                why = f" ({change.no_key})" if change.no_key else ""
                raise UndecodableError(
                    f"the key column {name!r} has no value{why}{self._shard_advice([name])}"
                )
            if isinstance(value, list | dict):
                raise UndecodableError(
                    f"the key column {name!r} is nested, and such values are not equal in all engines alike"
                )
            found[name] = value
        return found

    def _refuse_untold(self, change: SourceChange, before: Mapping[str, Any] | None) -> None:
        """Refuse a change that may have another key of the table than it tells: the record's key is not the table's."""
        if not change.keys or change.is_tombstone or not (change.is_update or change.op is Op.DELETE):
            return
        told = self._named(change.keys, is_whole=False) or {}
        row = before or {}
        # A source's rows stay in its shard.
        known = {self._table.shard_column, *told} if change.is_update else told
        untold = [name for name in self._made.keys if name not in known]
        missing = [name for name in untold if row.get(name) is None or row[name] is UNAVAILABLE]
        if (
            untold
            and not missing
            and not any(is_told(value) for name, value in row.items() if name not in told)
        ):
            missing = untold
        if missing:
            raise UndecodableError(
                f"the record's key has no {', '.join(missing)}, which is primary_key of the table, and the event does not tell what it was "
                "before: the row of another key would stay. Have the source tell rows whole (REPLICA IDENTITY FULL of PostgreSQL, "
                "binlog_row_image FULL of MySQL), or key the records by it (message.key.columns of Debezium)"
                f"{self._shard_advice(missing)}"
            )

    def _shard_advice(self, missing: Sequence[str]) -> str:
        """What else may be meant where the records do not have the column of shards."""
        if self._table.shard_column not in missing or self._table.writes_shard:
            return ""
        return (
            f"; {self._table.shard_column} is shard_column and one of primary_key, so the records must have it: take it out of "
            "primary_key if the job is to write the source's name in it"
        )

    def _old_key(self, before: Mapping[str, Any] | None, key: Mapping[str, Any]) -> dict[str, Any] | None:
        """The key that an update took from its row, by the row before it."""
        if before is None:
            return None
        old = {name: before.get(name) for name in key}
        for value in old.values():
            if isinstance(value, Misfit):
                raise value.refused()
        if old == dict(key) or any(value is None or value is UNAVAILABLE for value in old.values()):
            return None
        return old

    def _other_key(self, change: SourceChange) -> tuple[Any, ...] | None:
        """The key of the other half of a change of a key, where its header has all of it."""
        moved = self._named(change.moved, is_whole=False)
        if not moved or self._table.sequence != "source":
            return None
        key = tuple(moved.get(name) for name in self._made.keys)
        # A nested value is none that a key may have; the record's own key says so.
        return None if any(value is None or isinstance(value, list | dict | Misfit) for value in key) else key

    def _ordering_of_delete(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """The same of a row that was deleted; None where the source did not tell them (``safewrite.cdc.rows.ranking``)."""
        try:
            return self._ordering(row)
        except UndecodableError:
            return dict.fromkeys(self._table.precombine_key or ())

    def _ordering(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """The values of the columns that order changes, besides the position."""
        found = {name: row.get(name) for name in self._table.precombine_key or ()}
        for value in found.values():
            if isinstance(value, Misfit):
                raise value.refused()
        missing = [
            name for name, value in found.items() if value is None or value is UNAVAILABLE or is_nan(value)
        ]
        if missing:
            raise UndecodableError(
                f"{', '.join(missing)} order the changes (precombine_key) and have no value"
            )
        return found
