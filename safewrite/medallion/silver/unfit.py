"""Finds changes that silver cannot take, and that go to quarantine: two with one place in the order, or one without a value.

Within a batch the place in the files decides between changes of one sequence.  What silver took from an earlier batch stays,
and the other is put aside: nothing says which is right.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from decimal import Decimal
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from safewrite.medallion.config.bronze_columns import (
    BEFORE_ALL,
    BRONZE_COLUMNS,
    COMMIT_DATE,
    SEQUENCE,
    TRUNCATED_OP,
    UNCHANGED,
)
from safewrite.medallion.files.text_parsing import stamp_number
from safewrite.medallion.files.unavailable_values import lacks_any, names_of
from safewrite.medallion.tables.job import TableJob

_Row = dict[str, Any]
Record = tuple[str, str, int]
"""A path, the tag of a content, and the number of a record in it."""
_PLACE = ("_file", "_tag", "_line")
_UNSHOWN = frozenset({*BRONZE_COLUMNS.names, COMMIT_DATE.name, UNCHANGED})
"""Columns of bronze that silver does not have, but for the time of a commit where it is asked for."""


def place_of(path: str, line: int) -> tuple[int, str, int]:
    """Where a record stands among those of other files: the times in their names come first."""
    return _stamp(path), path, line


@lru_cache(maxsize=4096)
def _stamp(path: str) -> int:
    """The time in a file's name; kept, for parsing it takes as long as all else that is done with a record."""
    try:
        return stamp_number(path.rpartition("/")[2].partition(".")[0])
    except ValueError:
        return 0


def last_of_ties(rows: pa.Table, keys: Sequence[str], *, is_timed: bool) -> pa.Table:
    """The rows without those that another of their key and sequence says otherwise and stands behind; equal ones stay.

    ``is_timed``: silver has the time of a commit.
    """
    order = list(SEQUENCE)
    if rows.group_by(order).aggregate([]).num_rows == rows.num_rows:
        return rows
    numbered = rows.select([*keys, *order]).append_column("_row", pa.array(np.arange(rows.num_rows)))
    groups = numbered.group_by([*keys, *order]).aggregate([("_row", "list")])["_row_list"]
    shared = groups.filter(pc.greater(pc.list_value_length(groups), 1)).to_pylist()
    goes = np.zeros(rows.num_rows, np.bool_)
    for numbers in shared:
        found = rows.take(pa.array(numbers)).to_pylist()
        last = max(found, key=lambda row: place_of(row["_file"], row["_line"]))
        for number, row in zip(numbers, found, strict=True):
            goes[number] = _says(row, is_timed=is_timed) != _says(last, is_timed=is_timed)
    return rows.filter(pa.array(~goes))


def unfit(
    job: TableJob, rows: pa.Table, aside: Set[Record], *, reset: bool = False, epochs: Sequence[int] = ()
) -> dict[int, str]:
    """Rows of a batch that silver cannot take, by number, and why; reads bronze and the keys of silver.

    ``aside`` are rows that silver was not given before.  What silver has goes before the batch: all with ``reset``, what is older than
    ``epochs``, which begin with it, with these.

    Raises:
        BronzeGapError: a file of bronze is gone.
        SafewriteError: silver cannot be read.
    """
    floor = (max(epochs, default=0), BEFORE_ALL)
    return dict(_without_value(job, rows, floor, reset=reset)) | dict(_tied(job, rows, aside))


def _tied(job: TableJob, rows: pa.Table, aside: Set[Record]) -> Iterator[tuple[int, str]]:
    keys, is_timed = job.config.keys, bool(job.config.commit_fields)
    names = [*keys, *SEQUENCE]
    wanted = {tuple(row[name] for name in names) for row in rows.select(names).to_pylist()}
    known = {_record(row) for row in rows.select(_PLACE).to_pylist()} | aside
    others: dict[tuple[Any, ...], list[_Row]] = {}
    truncates: list[_Row] = []
    for piece in job.lineage.pieces(job.lineage.whole()):
        truncates += piece.filter(pc.equal(piece["_op"], TRUNCATED_OP)).select(list(SEQUENCE)).to_pylist()
        near = piece.filter(_among(piece, rows, "_seq"))
        for row in near.to_pylist():
            key = tuple(row[name] for name in names)
            if key in wanted and _record(row) not in known:
                others.setdefault(key, []).append(row)
    for number, row in enumerate(rows.to_pylist()):
        if row["_op"] != TRUNCATED_OP and {name: row[name] for name in SEQUENCE} in truncates:
            yield (
                number,
                f"its sequence {row['_seq']} is that of a truncate of the source, so neither comes first",
            )
            continue
        for other in others.get(tuple(row[name] for name in names), ()):
            if _says(row, is_timed=is_timed) != _says(other, is_timed=is_timed):
                place = f"{other['_file']}, record {other['_line']}"
                yield (
                    number,
                    f"another change of its key has the same sequence {row['_seq']} and came before: {place}",
                )
                break


def _without_value(
    job: TableJob, rows: pa.Table, floor: tuple[int, Decimal], *, reset: bool
) -> Iterator[tuple[int, str]]:
    """Updates without a value that silver has not; what is older than the floor is none that they could keep."""
    if not lacks_any(rows).any():
        return
    keys = job.config.keys
    silver = job.places.lineage(job.name, job.silver, job.config.format)
    silver.look()
    have = {
        tuple(row[name] for name in keys): tuple(row[name] for name in SEQUENCE)
        for piece in silver.pieces([] if reset else silver.whole(), [*keys, *SEQUENCE])
        for row in piece.filter(_among(piece, rows, keys[0])).to_pylist()
        if tuple(row[name] for name in SEQUENCE) > floor
    }
    order = [*keys, *SEQUENCE, "_file", "_line", "_op", UNCHANGED]
    in_order = sorted(
        enumerate(rows.select(order).to_pylist()),
        key=lambda one: (*(one[1][name] for name in SEQUENCE), place_of(one[1]["_file"], one[1]["_line"])),
    )
    for number, row in in_order:
        key = tuple(row[name] for name in keys)
        at = tuple(row[name] for name in SEQUENCE)
        if at < floor:
            continue
        # A row of silver that is newer than a delete or truncate stays, with its values.
        if row["_op"] == TRUNCATED_OP:
            have = {one: since for one, since in have.items() if since > at}
        elif row["_op"] == "D":
            if key in have and have[key] <= at:
                del have[key]
        elif names_of(row) and key not in have:
            yield (
                number,
                f"the log lacks its {', '.join(names_of(row))}, and silver has no row of its key to keep them of",
            )
        else:
            have[key] = max(at, have.get(key, at))


def _among(piece: pa.Table, rows: pa.Table, column: str) -> pa.ChunkedArray:
    """Which rows have a value of a column that some others have."""
    values = rows[column].combine_chunks().cast(piece[column].type)
    return pc.is_in(piece[column], value_set=values)


def _says(row: _Row, *, is_timed: bool) -> str:
    """What a change says, whichever record brings it."""
    if row["_op"] == "D":
        return "D"
    lacking = sorted(names_of(row))
    time = [row["_commit_time"]] if is_timed else []
    return repr([(name, value) for name, value in row.items() if name not in _UNSHOWN] + time + lacking)


def _record(row: _Row) -> Record:
    return row["_file"], row["_tag"], row["_line"]
