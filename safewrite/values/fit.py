"""Fits an array into a type: the values that have an equal there, and why the others have none, by row."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pyarrow as pa

from safewrite.values import compute as pc
from safewrite.values.casts import convert
from safewrite.values.refusals import NotExactError

Convert = Callable[[pa.Array], pa.Array]
"""Converts all values of an array, or raises because of one."""
REFUSALS = (NotExactError, pa.ArrowInvalid, pa.ArrowNotImplementedError, ValueError, OverflowError)
"""What a conversion raises where a value does not fit."""


def fit(
    values: pa.Array, kind: pa.DataType, convert_all: Convert | None = None
) -> tuple[pa.Array, dict[int, str]]:
    """``values`` as ``kind``, NULL for those that do not fit, and why they do not, by row.

    Args:
        convert_all: converts other values than :func:`convert` does, such as texts.

    Raises:
        OtherMeaningError: no value of the one type is a value of the other.
    """
    into = convert_all or (lambda array: convert(array, kind))
    try:
        return into(values), {}
    except REFUSALS:
        pass
    coded = values if pa.types.is_dictionary(values.type) else values.dictionary_encode()
    known = coded.dictionary
    why = {code: str(error) for code, error in misfits(known, into)}
    rows = {row: why[code] for row, code in enumerate(coded.indices.to_pylist()) if code in why}
    if len(why) == len(known):
        return pa.nulls(len(values), kind), rows
    fitting = pc.if_else(pc.is_in(pa.array(range(len(known))), pa.array(why, pa.int64())), None, known)
    return into(fitting).take(coded.indices), rows


def misfits(values: pa.Array, into: Convert) -> Iterator[tuple[int, Exception]]:
    """The places of values that a conversion refuses, first ones first, and why.

    A span that is refused is halved, and spans grow again where two in turn are taken: few misfits cost little, and where
    every value is one, each is tried once.
    """
    start, size, grows = 0, len(values), False
    while start < len(values):
        try:
            into(values.slice(start, size))
        except REFUSALS as error:
            if size == 1:
                yield start, error
                start += 1
            size, grows = max(size // 2, 1), False
        else:
            start += size
            size, grows = size * 2 if grows else size, True
