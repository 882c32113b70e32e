"""Keeps in an Iceberg table how far sources were taken into it.

A table property per source, set in the commit of the rows.  It names the snapshot that set it: after a roll-back behind that
one, the summaries of the branch tell where the position was before.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

from safewrite.iceberg.own_properties import POSITION, TABLE, told
from safewrite.protocol.positions import Known, Moves

if TYPE_CHECKING:
    from safewrite.protocol.iceberg.head import TableVersion

POSITIONS = "safewrite.positions"
"""Of a snapshot's summary: where it took the sources of its rows, as JSON."""


def table_properties(moves: Moves, table_id: str, snapshot_id: int) -> dict[str, str]:
    """Properties of the table, set in the same commit: of each source ``{"at": position, "snapshot": id, "table": id}``."""
    return {
        POSITION + name: json.dumps({"at": move.end, "snapshot": snapshot_id, TABLE: table_id})
        for name, move in moves.items()
    }


def summary(moves: Moves) -> dict[str, str]:
    """What the snapshot says of the positions that it moves."""
    ends = {name: move.end for name, move in moves.items()}
    return {POSITIONS: json.dumps(ends, ensure_ascii=False)} if ends else {}


def positions_of(head: TableVersion, names: Collection[str] | None = None) -> Known:
    """The positions of a table by name (None: all of them); None where a roll-back took away what tells one."""
    if names is None:
        own = [name for name in head.properties if name.startswith(POSITION)]
        names = [name.removeprefix(POSITION) for name in own]
    found: dict[str, int | None] = {}
    for name in names:
        position = told(head, POSITION + name, _position)
        if position is None:
            continue
        at, snapshot_id = position
        found |= _before(head, name) if head.is_rolled_back(snapshot_id) else {name: at}
    return found


def _position(fields: Mapping[str, Any]) -> tuple[int, int]:
    return int(fields["at"]), int(fields["snapshot"])


def _before(head: TableVersion, source: str) -> Mapping[str, int | None]:
    """Where the branch has the position; nothing where it never had one, None where it cannot be told."""
    oldest = None
    for at in head.ancestors():
        ends = json.loads(head.summaries.get(at, {}).get(POSITIONS, "{}"))
        if source in ends:
            return {source: int(ends[source])}
        oldest = at
    is_whole = oldest is None or head.sequences[oldest] == 1
    return {} if is_whole else {source: None}
