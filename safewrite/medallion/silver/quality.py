"""Judges a batch before silver takes it, and what silver would become: names bad rows, and refuses what is bad as a whole."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from safewrite.errors import InvalidInputError, SafewriteError, StorageError
from safewrite.intake.duck import MEMORY_MAX, closed_duckdb
from safewrite.medallion.config.bronze_columns import TRUNCATED_OP
from safewrite.medallion.config.quality_rules import Quality, Result
from safewrite.medallion.files.unavailable_values import lacks
from safewrite.medallion.silver.row_rules import SilverRules


class RuleError(InvalidInputError):
    """A rule refuses what silver would become, or cannot be applied."""


def faults(
    rows: pa.Table,
    quality: Quality,
    name: str,
    *,
    where: Callable[[int], str] | None = None,
    unfit: Mapping[str, npt.NDArray[np.bool_]] | None = None,
    asked: SilverRules | None = None,
) -> dict[int, str]:
    """Bad rows by number, with the first reason; deletes have no more than a key, and are not judged.

    ``where`` names a row in messages, by its file and record unless given; ``unfit`` are rows that no rule need find, by reason;
    ``asked`` are the rules of silver itself.

    Raises:
        InvalidInputError: the batch is bad as a whole, or a rule cannot be applied.
    """
    shares, found = Shares(), judged(rows, quality, name, unfit or {}, asked)
    shares.count(rows, found, quality, where)
    shares.check(quality, name)
    return found


def judged(
    rows: pa.Table,
    quality: Quality,
    name: str,
    unfit: Mapping[str, npt.NDArray[np.bool_]],
    asked: SilverRules | None = None,
) -> dict[int, str]:
    """As :func:`faults`, of a part of a batch: how many are bad is not judged."""
    found: dict[int, str] = {}
    for reason, bad in unfit.items():
        for row in np.flatnonzero(bad).tolist():
            found.setdefault(row, reason)
    is_judged = _are_judged(rows)
    for reason, bad in _rules(rows, quality, name):
        for row in np.flatnonzero(bad & is_judged).tolist():
            found.setdefault(row, reason)
    for row, reason in (asked.broken(rows) if asked else {}).items():
        if is_judged[row]:
            found.setdefault(row, reason)
    return found


def _are_judged(rows: pa.Table) -> npt.NDArray[np.bool_]:
    no_rows = pa.array(["D", TRUNCATED_OP])
    return ~np.asarray(pc.is_in(rows["_op"], value_set=no_rows).to_numpy(), np.bool_)


@dataclass
class Shares:
    """Counts of a batch, which may be counted in parts: its rows, those that are judged, bad ones, and NULLs by column."""

    rows: int = 0
    judged: int = 0
    bad: int = 0
    nulls: Counter[str] = field(default_factory=Counter)
    first: str | None = None
    """The first bad row, and why it is."""

    def count(
        self,
        rows: pa.Table,
        found: Mapping[int, str],
        quality: Quality,
        where: Callable[[int], str] | None = None,
    ) -> None:
        """Count some rows, of which bad ones were found."""
        mine = rows.filter(pa.array(_are_judged(rows)))
        self.rows, self.judged, self.bad = (
            self.rows + rows.num_rows,
            self.judged + mine.num_rows,
            self.bad + len(found),
        )
        for column in quality.null_share_max:
            self.nulls[column] += mine[column].null_count - int(lacks(mine, column).sum())
        if found and self.first is None:
            number = min(found)
            place = (
                f"{rows['_file'][number]}, record {rows['_line'][number]}" if where is None else where(number)
            )
            self.first = f"{place}: {found[number]}"

    def add(self, other: Shares) -> None:
        """Take in the counts of a later part."""
        self.rows, self.judged, self.bad = (
            self.rows + other.rows,
            self.judged + other.judged,
            self.bad + other.bad,
        )
        self.nulls.update(other.nulls)
        self.first = self.first or other.first

    def check(self, quality: Quality, name: str) -> None:
        """Refuse a batch of which too much is bad.

        Raises:
            RuleError: nothing of it is to be written.
        """
        for column, share_max in quality.null_share_max.items():
            if self.nulls[column] > share_max * self.judged:
                raise RuleError(
                    f"{self.nulls[column]} of {self.judged} new rows of {name} have NULL in {column}, and null_share_max is {share_max}. "
                    "Nothing was written to silver; bronze has the rows. Mend the source, or change the table's quality "
                    "settings, and run again."
                )
        if self.bad > quality.quarantined_share_max * self.rows:
            raise RuleError(
                f"{self.bad} of {self.rows} new rows of {name} are bad, and quarantined_share_max is "
                f"{quality.quarantined_share_max}. The first: {self.first}. Nothing was written, neither to silver nor to quarantine; bronze has the rows. Mend the "
                "source, or change the table's quality settings, and run again."
            )


def _rules(rows: pa.Table, quality: Quality, name: str) -> Iterator[tuple[str, npt.NDArray[np.bool_]]]:
    for column in quality.not_null:
        yield f"{column} is NULL", _true(pc.is_null(rows[column])) & ~lacks(rows, column)
    for column, (low, high) in quality.ranges.items():
        for bound, compare, word in ((low, pc.less, "below"), (high, pc.greater, "above")):
            if bound is not None:
                try:
                    bad = compare(rows[column], pa.scalar(bound))
                except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
                    raise _no_rule(name, f"ranges.{column}", error) from error
                yield f"{column} is {word} {bound:g}", _true(bad)
        if pa.types.is_floating(rows[column].type):
            yield f"{column} is NaN", _true(pc.is_nan(rows[column]))
    if quality.conditions:
        yield from _conditions(rows, quality.conditions, name, "conditions")
    for function in quality.functions:
        yield f"refused by {function.__name__}", _refused_by(function, rows, name)


def _refused_by(function: Any, rows: pa.Table, name: str) -> npt.NDArray[np.bool_]:
    """What a check of the user says of each row: true is good."""
    try:
        good = (
            pa.chunked_array([function(rows)], pa.bool_())
            if rows.num_rows
            else pa.chunked_array([], pa.bool_())
        )
    except Exception as error:
        raise _no_rule(name, f"functions: {function.__name__}", error) from error
    if len(good) != rows.num_rows:
        raise _no_rule(
            name,
            f"functions: {function.__name__}",
            f"it judged {len(good)} rows, and there are {rows.num_rows}",
        )
    return ~_true(good)


def check_result(rows: pa.Table, counts: Mapping[str, int], rules: Result, name: str) -> None:
    """Judge the rows that a commit would write to silver, and its counts, before it.

    Raises:
        InvalidInputError: a rule is broken, or cannot be applied.
    """
    bad = np.zeros(rows.num_rows, np.bool_)
    reasons = []
    for reason, found in (
        _conditions(rows, rules.conditions, name, "result.conditions") if rules.conditions else ()
    ):
        if found.any():
            reasons.append(f"{int(found.sum())} times {reason}")
        bad |= found
    if bad.sum() > rules.failed_share_max * rows.num_rows:
        raise _refused_result(
            name, f"{int(bad.sum())} of {rows.num_rows} rows break a rule ({'; '.join(reasons)}), and "
            f"result.failed_share_max is {rules.failed_share_max}"
        )  # fmt: skip
    for column, share_max in rules.null_share_max.items():
        nulls = rows[column].null_count
        if nulls > share_max * rows.num_rows:
            raise _refused_result(
                name,
                f"{nulls} of {rows.num_rows} rows have NULL in {column}, and result.null_share_max is {share_max}",
            )
    if rules.deleted_max is not None and counts["deleted"] > rules.deleted_max:
        raise _refused_result(
            name, f"{counts['deleted']} rows would be deleted, and result.deleted_max is {rules.deleted_max}"
        )
    for query in rules.queries:
        if not _answer(query, rows, name):
            raise _refused_result(name, f"not true: {query}")
    for function in rules.functions:
        try:
            why = function(rows, dict(counts))
        except Exception as error:
            raise _no_rule(name, f"result.functions: {function.__name__}", error) from error
        if why is not None:
            raise _refused_result(name, f"{function.__name__} says: {why}")


def _answer(query: str, rows: pa.Table, name: str) -> bool:
    import duckdb

    with _connected("result", rows) as connection:
        try:
            found = connection.execute(query).fetchall()
        except duckdb.Error as error:
            raise _no_rule(name, f"result.queries: {query!r}", error) from error
    if len(found) != 1 or len(found[0]) != 1 or not isinstance(found[0][0], bool | None):
        raise _no_rule(name, f"result.queries: {query!r}", "it does not answer with one true or false")
    return found[0][0] is True


def _refused_result(name: str, why: str) -> RuleError:
    return RuleError(
        f"What silver of {name} would become is refused: {why}. Nothing was written to silver, which is as it was; bronze has "
        "the rows. Mend the source, or change the table's quality settings, and run again."
    )


@contextmanager
def _connected(view: str, rows: pa.Table) -> Iterator[Any]:
    with closed_duckdb("Rules in SQL are judged") as connection:
        connection.register(view, rows)
        yield connection


def _conditions(
    rows: pa.Table, conditions: list[str], name: str, field: str
) -> Iterator[tuple[str, npt.NDArray[np.bool_]]]:
    numbered = rows.append_column("_row", pa.array(np.arange(rows.num_rows)))
    with _connected("batch", numbered) as connection:
        import duckdb

        for condition in conditions:
            # As a comment could swallow the bracket, the condition stands on a line of its own.
            query = f'SELECT "_row" FROM batch WHERE NOT CAST((\n{condition}\n) AS BOOLEAN)'
            try:
                found = connection.execute(query).fetchnumpy()["_row"]
            except duckdb.Error as error:
                raise _no_rule(name, f"{field}: {condition!r}", error) from error
            bad = np.zeros(rows.num_rows, np.bool_)
            bad[np.asarray(found, np.int64)] = True
            yield f"not true: {condition}", bad


def _no_rule(name: str, rule: str, error: Any) -> SafewriteError:
    if type(error).__name__ == "OutOfMemoryException":
        return StorageError(
            f"tables.{name}.quality.{rule} took more memory than a rule may have ({MEMORY_MAX} of the machine's or container's). "
            "Nothing was written to silver; bronze has the rows. Give the job more memory, or make the rule simpler."
        )
    return RuleError(
        f"tables.{name}.quality.{rule} cannot be applied: {error}. Nothing was written to silver; bronze has the rows. "
        "Correct the rule, and run again."
    )


def _true(values: Any) -> npt.NDArray[np.bool_]:
    return np.asarray(pc.fill_null(values, False).to_numpy(), np.bool_)
