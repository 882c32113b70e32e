"""Finds rows of bronze that silver is not to take, and commits them to quarantine."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from safewrite.errors import TableNotFoundError
from safewrite.medallion.config.bronze_columns import LOADED_OP
from safewrite.medallion.config.full_load_epochs import check_said
from safewrite.medallion.files.records import BadRecord
from safewrite.medallion.files.unavailable_values import lacks_any
from safewrite.medallion.silver.changes import moved_keys
from safewrite.medallion.silver.unfit import Record
from safewrite.medallion.tables.job import TableJob, quarantine_rows

log = logging.getLogger("safewrite")
Aside = dict[tuple[str, str], list[BadRecord]]
"""Bad records, by path and tag."""


def moved_without_value(rows: pa.Table, keys: Sequence[str]) -> dict[str, npt.NDArray[np.bool_]]:
    """Updates that change a key, and of which the log lacks values: those of the new row are nowhere."""
    lacking = lacks_any(rows)
    if not lacking.any():
        return {}
    return {
        "its key changed, and the log lacks the values of other columns": lacking & moved_keys(rows, keys)[0]
    }


def taken_out(rows: pa.Table, bad: Mapping[int, str]) -> tuple[pa.Table, Aside]:
    """The rows without bad ones, and these as records."""
    if not bad:
        return rows, {}
    where: Aside = {}
    for row, reason in bad.items():
        one = {name: rows[name][row].as_py() for name in rows.column_names}
        text = ", ".join(f"{name}={value!r}" for name, value in one.items() if not name.startswith("_"))
        where.setdefault((one["_file"], one["_tag"]), []).append(BadRecord(one["_line"], reason, text))
    good = np.ones(rows.num_rows, np.bool_)
    good[list(bad)] = False
    return rows.filter(pa.array(good)), where


def put_aside(job: TableJob, where: Aside) -> int:
    """Commit bad records to quarantine; how many are new there.  Raises as ``append_many``."""
    batches = [
        (
            f"{file}#{tag}",
            quarantine_rows(job.name, "silver", file, tag, sorted(records, key=lambda one: one.line)),
        )
        for (file, tag), records in where.items()
    ]
    return job.places.put_aside(job.name, "silver", batches)


def put_aside_before(job: TableJob) -> set[Record]:
    """The records of a table that silver was not given, by quarantine.  Raises SafewriteError."""
    try:
        rows = job.places.records_aside(job.name, "silver").to_pylist()
    except TableNotFoundError:
        return set()
    return {(row["file"], row["tag"], row["line"]) for row in rows}


def loads_of(rows: pa.Table) -> list[int]:
    """The epochs of whose full loads there are rows."""
    found: list[int] = pc.unique(rows["_epoch"].filter(pc.equal(rows["_op"], LOADED_OP))).to_pylist()
    return found


def check_loads(job: TableJob, loaded: Iterable[int]) -> None:
    """Refuse full loads of epochs of which nothing is said.  Raises InvalidInputError."""
    check_said(job.config.reload, job.config.epoch, [*loaded], job.name)


def updates_in(rows: pa.Table) -> int:
    """How many updates there are."""
    return int(pc.sum(pc.equal(rows["_op"], "U")).as_py() or 0)


def log_unknown_keys(job: TableJob, updates: int) -> None:
    """Log how many updates do not say which key their row had: one that changed it leaves the old row, and nothing shows it."""
    if updates and not job.config.files.before_image:
        log.info(
            "medallion: %s: %d updates lack the key that their row had; where one changed it, the old row stays "
            "(files.before_image)",
            job.name,
            updates,
        )
