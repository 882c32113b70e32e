"""Judges a batch before silver takes it: bad rows are told with a reason, a bad batch is refused."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from safewrite.errors import InvalidInputError, MissingExtraError
from safewrite.medallion.config import Quality


def faults(rows: pa.Table, quality: Quality, name: str) -> dict[int, str]:
    """Bad rows by number, with the first reason; deletes have no more than a key, and are not judged.

    Raises:
        InvalidInputError: the batch is bad as a whole, or a rule cannot be applied.
    """
    judged = np.asarray(pc.not_equal(rows["_op"], "D").to_numpy(), np.bool_)
    found: dict[int, str] = {}
    for reason, bad in _rules(rows, quality, name):
        for row in np.flatnonzero(bad & judged).tolist():
            found.setdefault(row, reason)
    _check_nulls(rows.filter(pa.array(judged)), quality, name)
    if len(found) > quality.quarantined_share_max * rows.num_rows:
        first = min(found)
        raise InvalidInputError(
            f"{len(found)} of {rows.num_rows} new rows of {name} are bad, and quarantined_share_max is "
            f"{quality.quarantined_share_max}. The first: {rows['_file'][first]}, record {rows['_line'][first]}: "
            f"{found[first]}. Nothing was written, neither to silver nor to quarantine; bronze has the rows. Mend the "
            "source, or change the table's quality settings, and run again."
        )
    return found


def _rules(rows: pa.Table, quality: Quality, name: str) -> Iterator[tuple[str, npt.NDArray[np.bool_]]]:
    for column in quality.not_null:
        yield f"{column} is NULL", _true(pc.is_null(rows[column]))
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
        yield from _conditions(rows, quality.conditions, name)


def _conditions(
    rows: pa.Table, conditions: list[str], name: str
) -> Iterator[tuple[str, npt.NDArray[np.bool_]]]:
    try:
        import duckdb
    except ModuleNotFoundError as error:
        raise MissingExtraError(
            "quality.conditions need DuckDB: pip install 'safewrite-lake[medallion]'. Nothing was written to silver."
        ) from error
    with duckdb.connect(":memory:", config={"threads": 1}) as connection:
        connection.register("batch", rows.append_column("_row", pa.array(np.arange(rows.num_rows))))
        connection.execute("SET TimeZone = 'UTC'")  # else a time without a zone is the machine's own
        connection.execute("SET enable_external_access = false")
        for condition in conditions:
            # As a comment could swallow the bracket, the condition stands on a line of its own.
            query = f'SELECT "_row" FROM batch WHERE NOT CAST((\n{condition}\n) AS BOOLEAN)'
            try:
                found = connection.execute(query).fetchnumpy()["_row"]
            except duckdb.Error as error:
                raise _no_rule(name, f"conditions: {condition!r}", error) from error
            bad = np.zeros(rows.num_rows, np.bool_)
            bad[np.asarray(found, np.int64)] = True
            yield f"not true: {condition}", bad


def _check_nulls(rows: pa.Table, quality: Quality, name: str) -> None:
    for column, share_max in quality.null_share_max.items():
        nulls = rows[column].null_count
        if nulls > share_max * rows.num_rows:
            raise InvalidInputError(
                f"{nulls} of {rows.num_rows} new rows of {name} have NULL in {column}, and null_share_max is {share_max}. "
                "Nothing was written to silver; bronze has the rows. Mend the source, or change the table's quality "
                "settings, and run again."
            )


def _no_rule(name: str, rule: str, error: Any) -> InvalidInputError:
    return InvalidInputError(
        f"tables.{name}.quality.{rule} cannot be applied: {error}. Nothing was written to silver; bronze has the rows. "
        "Correct the rule, and run again."
    )


def _true(values: Any) -> npt.NDArray[np.bool_]:
    return np.asarray(pc.fill_null(values, False).to_numpy(), np.bool_)
