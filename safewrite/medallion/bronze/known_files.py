"""Says which files bronze has: the remembered ones while bronze is that table and only grew, else those that bronze names."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from safewrite.medallion.bronze.reset_guard import order_of
from safewrite.medallion.bronze.state import BronzeState, KnownFile
from safewrite.medallion.bronze.summary import ROWS, contents_of
from safewrite.medallion.config.bronze_columns import TRUNCATE_FILE
from safewrite.medallion.files.file_versions import content_of
from safewrite.medallion.files.rows import loaded_ms
from safewrite.medallion.lineage.lineage import BronzeGapError
from safewrite.medallion.tables.job import TableJob


def known_state(job: TableJob, state: BronzeState | None) -> BronzeState:
    """What the tables have: what was remembered, if bronze is still that table and grew from there; else read again.

    Raises:
        SafewriteError: bronze cannot be read.
    """
    if not job.has_bronze:  # it is made once the first files are judged
        _ = job.places.quarantine  # which makes it
        return BronzeState()
    lineage = job.lineage
    lineage.look()
    if state is not None and state.bronze_id == lineage.table_id and catch_up(job, state):
        return state
    fresh = BronzeState(
        bronze_id=lineage.table_id, bronze_head=lineage.head, bronze_stamp=lineage.stamp(lineage.head)
    )
    _count(fresh, contents_of(job, lineage.whole()), "rows")
    # What quarantine alone has proves nothing: its commit comes first, and bronze's may never have come.
    _count(fresh, _put_aside_before(job), "quarantined", only_known=True)
    return fresh


def count_file(job: TableJob, state: BronzeState, path: str) -> None:
    """Remember all contents of one file that bronze has."""
    job.lineage.look()
    found = contents_of(job, job.lineage.whole())
    _count(state, found.filter(pc.equal(found["_file"], path)), "rows")


def catch_up(job: TableJob, state: BronzeState, own: Set[int] = frozenset()) -> bool:
    """Note what other runs landed since, up to the head that the lineage saw; False where bronze did not grow from there."""
    lineage = job.lineage
    if not lineage.is_same(state.bronze_head, state.bronze_stamp):
        return False
    state.bronze_id = state.bronze_id or lineage.table_id
    if state.bronze_head != lineage.head:
        try:
            commits = lineage.since(state.bronze_head)
            foreign = [one for one in commits if one.version not in own]
            _count(state, contents_of(job, foreign), "rows")
        except BronzeGapError:
            return False
        state.bronze_head, state.bronze_stamp = lineage.head, lineage.stamp(lineage.head)
    return True


def _count(state: BronzeState, found: pa.Table, what: str, *, only_known: bool = False) -> None:
    """Note how many records of each content there are, and where they end in the order, if that is among ``found``."""
    for one in found.to_pylist():
        path, tag = one["_file"], one["_tag"]
        if path == TRUNCATE_FILE:
            state.truncated = max(state.truncated, one["_epoch"])
            continue
        known = state.files.get(path, {}).get(tag)
        if known is None:
            if only_known:
                continue
            known = KnownFile(content_of(tag), 0, 0)
        known = replace(known, **{what: one[ROWS]})
        if "_seq" in one:
            seen_ms = max(known.changed_ms, loaded_ms(one["_seq"]))
            known = replace(known, epoch=one["_epoch"], changed_ms=seen_ms)
            order = order_of(path, one["_seq"])
            if order is not None:
                state.note_order(known.epoch, order)
        state.note(path, tag, known)


def _put_aside_before(job: TableJob) -> pa.Table:
    _ = job.places.quarantine  # which makes it
    rows = job.places.records_aside(job.name, "raw")
    found = rows.group_by(["file", "tag"]).aggregate([([], "count_all")])
    return pa.table({"_file": found["file"], "_tag": found["tag"], ROWS: found["count_all"]})
