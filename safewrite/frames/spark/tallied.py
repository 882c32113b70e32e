"""Hands the rows of a Spark DataFrame to tasks, with their hashes and the check that they fail, and names the batch by them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from safewrite.errors import InvalidInputError
from safewrite.frames.fingerprint import Fingerprint
from safewrite.frames.spark.batch import BatchOrigin, Check, fingerprint_of
from safewrite.frames.spark.hashes import row_hash
from safewrite.frames.tally import FAULTS, HASH, Tally

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def marked(
    frame: DataFrame, checks: Sequence[Check], origin: BatchOrigin | None, volatile: tuple[str, ...]
) -> DataFrame:
    """The rows, each with its hash where it is to be known by it, and the number of the first check that it fails.

    Raises:
        InvalidInputError: a column has a type whose values cannot be compared, or a name that is needed here.
    """
    import pyspark.sql.functions as f

    taken = {HASH, FAULTS} & {*frame.columns}
    if taken:
        raise InvalidInputError(
            f"Columns {sorted(taken)} have names by which safewrite counts rows. Nothing was written. Rename them."
        )
    more = [] if origin is not None else [f.expr(row_hash(frame.schema, volatile)).alias(HASH)]
    if checks:
        cases = [f"WHEN {check.condition} THEN {number}" for number, check in enumerate(checks, 1)]
        more.append(f.expr(f"CASE {' '.join(cases)} ELSE 0 END").alias(FAULTS))
    return frame.select("*", *more)


def named_by(
    tally: Tally, checks: Sequence[Check], origin: BatchOrigin | None, volatile: tuple[str, ...]
) -> Fingerprint:
    """The fingerprint of the rows that tasks counted.

    Raises:
        SafewriteError: the refusal of a check.
    """
    if tally.faults:  # of the first check that any row fails, every row that fails it was counted
        number = min(tally.faults)
        raise checks[number].refusal(tally.faults[number], tally.rows)
    if origin is not None:
        return origin.fingerprint(tally.rows)
    return fingerprint_of(tally.rows, tally.high, tally.low, volatile)
