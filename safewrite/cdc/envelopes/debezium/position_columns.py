"""Reads the positions of many events of Debezium at once: what ``positions`` does event by event.

Both have to agree.  Events without a position that orders them are in doubt, and read one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from safewrite.cdc.connect.logical_types.column import RowFallback
from safewrite.cdc.envelopes.debezium.positions import of_debezium
from safewrite.cdc.envelopes.envelope import Positions
from safewrite.cdc.envelopes.event_fields import Fields, checked, fields, number_of, text_of, with_offsets
from safewrite.cdc.envelopes.position import or_none
from safewrite.cdc.records.change import Beginning
from safewrite.cdc.records.change_set import BEGINNINGS

_SEQUENCE = r'^\[(?:null|"(?P<commit>[0-9]{1,18})"),(?:null|"[0-9]{1,18}")\]$'
_FILE = r"\.(?P<number>[0-9]{1,10})$"


def positions_of(
    connector: str, source: Any, transaction: Any, offsets: pa.Array, fallback: RowFallback
) -> Positions:
    """The positions of events of one connector.

    Args:
        source, transaction: structs of the envelope; ``transaction`` is None where the schema has none.
        offsets: Kafka's.
    """
    known = _CONNECTORS.get(connector)
    if known is None:
        core, beginnings = _one_by_one(source, transaction, fallback), pa.nulls(len(offsets), pa.int8())
    else:
        core, beginnings = known(fields(source), fields(transaction), fallback)
    return Positions(with_offsets(core, offsets), beginnings)


def is_of_snapshot(source: Fields, length: int) -> pa.Array:
    """Whether events tell of rows that a snapshot read."""
    snapshot = text_of(source, "snapshot", length)
    return pc.fill_null(pc.not_equal(snapshot, "false"), False)


def _or_zero(numbers: pa.Array) -> pa.Array:
    return pc.fill_null(numbers, 0)


def _postgresql(source: Fields, transaction: Fields, fallback: RowFallback) -> tuple[pa.Array, pa.Array]:
    length = fallback.length
    lsn = number_of(source, "lsn", length)
    is_read = is_of_snapshot(source, length)
    commit = _last_commit(text_of(source, "sequence", length), fallback)
    committed = pc.max_element_wise(lsn, commit)  # NULL counts as none
    parts = (
        checked(committed, 20, fallback),
        pc.if_else(is_read, "0", "1"),
        checked(lsn, 20, fallback),
        checked(_or_zero(number_of(transaction, "total_order", length)), 10, fallback),
    )
    kind = pc.if_else(is_read, BEGINNINGS[Beginning.SNAPSHOT_ROW], BEGINNINGS[Beginning.CHANGE])
    beginnings = pc.if_else(pc.is_null(commit), kind, None).cast(pa.int8())
    return pc.binary_join_element_wise(*parts, ""), beginnings


def _last_commit(sequence: pa.Array, fallback: RowFallback) -> pa.Array:
    """The LSN of the last commit that the connector saw before each event; NULL before the first."""
    if sequence.null_count == len(sequence):
        return pa.nulls(len(sequence), pa.int64())
    found = pc.extract_regex(sequence, _SEQUENCE)
    fallback.where(pc.and_(pc.is_valid(sequence), pc.is_null(found)))
    commit = pc.struct_field(found, "commit")
    return pc.if_else(pc.not_equal(commit, ""), commit, None).cast(pa.int64())


def _mysql(source: Fields, _: Fields, fallback: RowFallback) -> tuple[pa.Array, pa.Array]:
    length = fallback.length
    found = pc.extract_regex(text_of(source, "file", length), _FILE)
    number = pc.struct_field(found, "number").cast(pa.int64())
    parts = (
        checked(number, 10, fallback),
        checked(number_of(source, "pos", length), 20, fallback),
        checked(_or_zero(number_of(source, "row", length)), 10, fallback),
    )
    return pc.binary_join_element_wise(*parts, ""), pa.nulls(length, pa.int8())


_CONNECTORS: Mapping[str, Callable[[Fields, Fields, RowFallback], tuple[pa.Array, pa.Array]]] = {
    "postgresql": _postgresql,
    "mysql": _mysql,
    "mariadb": _mysql,
}


def _one_by_one(source: Any, transaction: Any, fallback: RowFallback) -> pa.Array:
    sources = source.to_pylist()
    transactions = [None] * len(sources) if transaction is None else transaction.to_pylist()
    told = [
        or_none(of_debezium, *given) if given[0] is not None else ("", "no source")
        for given in zip(sources, transactions, strict=True)
    ]
    fallback.at(place for place, (_, unordered) in enumerate(told) if unordered is not None)
    return pa.array([position for position, _ in told], pa.string())
