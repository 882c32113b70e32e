"""Says which files bronze has: the remembered ones while bronze is that table and only grew, else those that bronze names."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from safewrite.medallion.bronze.reset_guard import order_of
from safewrite.medallion.bronze.restore_rows import TAGGED
from safewrite.medallion.bronze.state import BronzeState, KnownFile
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
    lineage = job.lineage
    lineage.look()
    if state is not None and state.bronze_id == lineage.table_id and catch_up(job, state):
        return state
    fresh = BronzeState(
        bronze_id=lineage.table_id, bronze_head=lineage.head, bronze_stamp=lineage.stamp(lineage.head)
    )
    _count(fresh, lineage.read(lineage.whole(), TAGGED), "rows")
    # What quarantine alone has proves nothing: its commit comes first, and bronze's may never have come.
    _count(fresh, _put_aside_before(job), "quarantined", only_known=True)
    return fresh


def count_file(job: TableJob, state: BronzeState, path: str) -> None:
    """Remember all contents of one file that bronze has."""
    job.lineage.look()
    rows = job.lineage.read(job.lineage.whole(), TAGGED)
    _count(state, rows.filter(pc.equal(rows["_file"], path)), "rows")


def catch_up(job: TableJob, state: BronzeState, own: Set[int] = frozenset()) -> bool:
    """Note what other runs landed since, up to the head that the lineage saw; False where bronze did not grow from there."""
    lineage = job.lineage
    if not lineage.is_same(state.bronze_head, state.bronze_stamp):
        return False
    if state.bronze_head != lineage.head:
        try:
            commits = lineage.since(state.bronze_head)
            foreign = [one for one in commits if one.version not in own]
            _count(state, lineage.read(foreign, TAGGED), "rows")
        except BronzeGapError:
            return False
        state.bronze_head, state.bronze_stamp = lineage.head, lineage.stamp(lineage.head)
    return True


def _count(state: BronzeState, rows: pa.Table, what: str, *, only_known: bool = False) -> None:
    ends = [("_epoch", "max"), ("_seq", "max")] if "_seq" in rows.column_names else []
    is_truncate = pc.equal(rows["_file"], TRUNCATE_FILE)
    if "_epoch" in rows.column_names:
        state.truncated = max([state.truncated, *rows["_epoch"].filter(is_truncate).to_pylist()])
    rows = rows.filter(pc.invert(is_truncate))
    counts = rows.group_by(["_file", "_tag"]).aggregate([([], "count_all"), *ends]).to_pylist()
    for one in counts:
        path, tag = one["_file"], one["_tag"]
        known = state.files.get(path, {}).get(tag)
        if known is None:
            if only_known:
                continue
            known = KnownFile(content_of(tag), 0, 0)
        known = replace(known, **{what: one["count_all"]})
        if ends:
            seen_ms = max(known.changed_ms, loaded_ms(one["_seq_max"]))
            known = replace(known, epoch=one["_epoch_max"], changed_ms=seen_ms)
            order = order_of(path, one["_seq_max"])
            if order is not None:
                state.note_order(known.epoch, order)
        state.note(path, tag, known)


def _put_aside_before(job: TableJob) -> pa.Table:
    _ = job.places.quarantine  # which makes it
    rows = job.places.records_aside(job.name, "raw")
    return pa.table({"_file": rows["file"], "_tag": rows["tag"]})
