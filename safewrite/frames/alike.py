"""Prepares many small frames of one form in one pass: what a frame costs, however few rows it has, is paid once.

Frames are of one form if they hold the same columns with values of the same types, so that each of them alone is
read as they are read together.  Whatever is not quite so, or is at fault, is left to ``prepare``, frame by frame.
"""

from __future__ import annotations

import datetime as dt
import decimal
import sys
from collections.abc import Hashable, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa

from safewrite.errors import InvalidInputError, WouldAlterError
from safewrite.frames.fingerprint import fingerprints
from safewrite.frames.prepare import Prepared, prepare
from safewrite.texts import kind

_TYPES = frozenset({bool, int, float, str, bytes, decimal.Decimal, dt.date, dt.datetime, dt.time, type(None)})
"""Types whose values are read alike in any company of their own type; nested values are not."""


def prepare_alike(
    frames: Sequence[object], target: pa.Schema, *, partition_by: Sequence[str] = ()
) -> list[Prepared | None]:
    """What ``prepare`` gives for each frame and the schema of a table; None for those that it has to be asked for."""
    forms: dict[Hashable, list[int]] = {}
    for number, data in enumerate(frames):
        form = _form(data)
        if form is not None:
            forms.setdefault(form, []).append(number)
    found: list[Prepared | None] = [None] * len(frames)
    for numbers in forms.values():
        if len(numbers) > 1:
            together = _together([frames[number] for number in numbers], target, partition_by)
            for number, prepared in zip(numbers, together, strict=False):
                found[number] = prepared
    return found


def _together(frames: Sequence[Any], target: pa.Schema, partition_by: Sequence[str]) -> list[Prepared]:
    """Each frame's part of all their rows; nothing where one of them is at fault, or they are too large to be kept."""
    try:
        whole = prepare(_concatenated(frames), target, partition_by=partition_by)
    except (InvalidInputError, WouldAlterError):
        return []
    kept = whole.kept
    if kept is None:
        return []
    counts = np.array([_rows(frame) for frame in frames], np.int64)
    starts = np.cumsum(counts) - counts
    return [
        replace(whole, rows=one.rows, fingerprint=one, _kept=kept.slice(int(start), one.rows))
        for start, one in zip(starts, fingerprints(kept, counts), strict=True)
    ]


def _rows(frame: Any) -> int:
    return frame.num_rows if isinstance(frame, pa.Table) else len(frame)


def _form(data: Any) -> Hashable | None:
    """What frames must share to be read together; None for those that are read alone."""
    if isinstance(data, pa.Table):
        return ("arrow", data.schema) if data.num_rows else None
    if type(data) is list:
        return _form_of_dicts(data)
    if type(data).__name__ == "DataFrame" and kind(data).partition(".")[0] == "pandas":
        return _form_of_pandas(data)
    return None


def _form_of_dicts(rows: list[Any]) -> Hashable | None:
    """The type of each column's values; None where it has several, where dicts differ in keys, or hold other things."""
    if not rows or set(map(type, rows)) != {dict}:
        return None
    names = rows[0].keys()
    if not names or any(row.keys() != names for row in rows):
        return None
    form = []
    for name in names:
        types = {type(row[name]) for row in rows}
        if not types <= _TYPES or len(types - {type(None)}) > 1 or not isinstance(name, str):
            return None
        form.append((name, min(types, key=lambda one: one is type(None))))
    return "dicts", frozenset(form)


def _form_of_pandas(data: Any) -> Hashable | None:
    dtypes = list(data.dtypes)
    names = {str(one) for one in dtypes}
    if not len(data) or data.index.nlevels > 1 or data.index.name is not None:
        return None
    if "object" in names or "category" in names or any(name.startswith("Sparse") for name in names):
        return None
    return "pandas", tuple(data.columns), tuple(dtypes)


def _concatenated(frames: Sequence[Any]) -> Any:
    if isinstance(frames[0], pa.Table):
        return pa.concat_tables(frames)
    if isinstance(frames[0], list):
        return list(chain.from_iterable(frames))
    return sys.modules["pandas"].concat(frames, ignore_index=True)
