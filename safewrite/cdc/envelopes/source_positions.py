"""Makes the positions of many events comparable at once: what ``safewrite.cdc.envelopes.source_position`` does event by event.

Both have to agree.  Events without a position that orders them are doubted, and read one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from safewrite.cdc.connect.columns import Doubts, UnsuitedError
from safewrite.cdc.envelopes.source_position import OFFSET_WIDTH, of_debezium, or_none
from safewrite.cdc.records.change import Beginning

Fields = Mapping[str, pa.Array]
"""The fields of a struct, each as a column."""

BEGINNINGS: Mapping[Beginning, int] = {Beginning.SNAPSHOT_ROW: 1, Beginning.CHANGE: 2}
"""How a column names what an event is that came before the connector saw a commit; NULL for all others."""
_SEQUENCE = r'^\[(?:null|"(?P<commit>[0-9]{1,18})"),(?:null|"[0-9]{1,18}")\]$'
_FILE = r"\.(?P<number>[0-9]{1,10})$"


@dataclass(frozen=True, slots=True)
class Sequences:
    """The positions of events, and what those are that came before the connector saw a commit."""

    positions: pa.Array
    beginnings: pa.Array


def sequences_of(
    connector: str, source: Any, transaction: Any, offsets: pa.Array, doubts: Doubts
) -> Sequences:
    """The positions of events of one connector.

    Args:
        source, transaction: structs of the envelope; ``transaction`` is None where the schema has none.
        offsets: Kafka's.
    """
    known = _CONNECTORS.get(connector)
    if known is None:
        core, beginnings = _one_by_one(source, transaction, doubts), pa.nulls(len(offsets), pa.int8())
    else:
        core, beginnings = known(fields(source), fields(transaction), doubts)
    return Sequences(with_offsets(core, offsets), beginnings)


def with_offsets(core: pa.Array, offsets: pa.Array) -> pa.Array:
    """Positions with Kafka's offsets behind them."""
    return pc.binary_join_element_wise(core, _padded(offsets, OFFSET_WIDTH), "-")


def fields(struct: Any) -> dict[str, pa.Array]:
    """The fields of a struct; NULL where there is none.

    Raises:
        UnsuitedError: it is none.
    """
    if struct is None or struct.null_count == len(struct):
        return {}
    if not pa.types.is_struct(struct.type):
        raise UnsuitedError("no struct")
    return dict(zip((one.name for one in struct.type), struct.flatten(), strict=True))


def text_of(found: Fields, name: str, length: int) -> pa.Array:
    """A field of texts; NULL everywhere if there is none."""
    if name not in found or found[name].null_count == length:
        return pa.nulls(length, pa.string())
    if found[name].type != pa.string():
        raise UnsuitedError(f"{name} is no text")
    return found[name]


def number_of(found: Fields, name: str, length: int) -> pa.Array:
    """A field of whole numbers; NULL everywhere if there is none."""
    if name not in found or found[name].null_count == length:
        return pa.nulls(length, pa.int64())
    if found[name].type != pa.int64():
        raise UnsuitedError(f"{name} is no whole number")
    return found[name]


def is_of_snapshot(source: Fields, length: int) -> pa.Array:
    """Whether events tell of rows that a snapshot read."""
    snapshot = text_of(source, "snapshot", length)
    return pc.fill_null(pc.not_equal(snapshot, "false"), False)


def _padded(numbers: pa.Array, width: int) -> pa.Array:
    return pc.utf8_lpad(numbers.cast(pa.string()), width, "0")


def _checked(numbers: pa.Array, width: int, doubts: Doubts) -> pa.Array:
    """Numbers with zeros in front; what is none, or too long, is doubted."""
    fits = pc.greater_equal(numbers, 0)
    if width < 19:
        fits = pc.and_(fits, pc.less(numbers, 10**width))
    doubts.unless(fits)
    return _padded(pc.if_else(pc.fill_null(fits, False), numbers, 0), width)


def _or_zero(numbers: pa.Array) -> pa.Array:
    return pc.fill_null(numbers, 0)


def _postgresql(source: Fields, transaction: Fields, doubts: Doubts) -> tuple[pa.Array, pa.Array]:
    length = doubts.length
    lsn = number_of(source, "lsn", length)
    is_read = is_of_snapshot(source, length)
    commit = _last_commit(text_of(source, "sequence", length), doubts)
    committed = pc.max_element_wise(lsn, commit)  # NULL counts as none
    parts = (
        _checked(committed, 20, doubts),
        pc.if_else(is_read, "0", "1"),
        _checked(lsn, 20, doubts),
        _checked(_or_zero(number_of(transaction, "total_order", length)), 10, doubts),
    )
    kind = pc.if_else(is_read, BEGINNINGS[Beginning.SNAPSHOT_ROW], BEGINNINGS[Beginning.CHANGE])
    beginnings = pc.if_else(pc.is_null(commit), kind, None).cast(pa.int8())
    return pc.binary_join_element_wise(*parts, ""), beginnings


def _last_commit(sequence: pa.Array, doubts: Doubts) -> pa.Array:
    """The LSN of the last commit that the connector saw before each event; NULL before the first."""
    if sequence.null_count == len(sequence):
        return pa.nulls(len(sequence), pa.int64())
    found = pc.extract_regex(sequence, _SEQUENCE)
    doubts.where(pc.and_(pc.is_valid(sequence), pc.is_null(found)))
    commit = pc.struct_field(found, "commit")
    return pc.if_else(pc.not_equal(commit, ""), commit, None).cast(pa.int64())


def _mysql(source: Fields, _: Fields, doubts: Doubts) -> tuple[pa.Array, pa.Array]:
    length = doubts.length
    found = pc.extract_regex(text_of(source, "file", length), _FILE)
    number = pc.struct_field(found, "number").cast(pa.int64())
    parts = (
        _checked(number, 10, doubts),
        _checked(number_of(source, "pos", length), 20, doubts),
        _checked(_or_zero(number_of(source, "row", length)), 10, doubts),
    )
    return pc.binary_join_element_wise(*parts, ""), pa.nulls(length, pa.int8())


_CONNECTORS: Mapping[str, Callable[[Fields, Fields, Doubts], tuple[pa.Array, pa.Array]]] = {
    "postgresql": _postgresql,
    "mysql": _mysql,
    "mariadb": _mysql,
}


def _one_by_one(source: Any, transaction: Any, doubts: Doubts) -> pa.Array:
    sources = source.to_pylist()
    transactions = [None] * len(sources) if transaction is None else transaction.to_pylist()
    told = [
        or_none(of_debezium, *given) if given[0] is not None else ("", "no source")
        for given in zip(sources, transactions, strict=True)
    ]
    doubts.at(place for place, (_, unordered) in enumerate(told) if unordered is not None)
    return pa.array([position for position, _ in told], pa.string())
