"""Reports what is unsafe about an Iceberg table, and how to repair it.

Findings about its files are in ``missing_files``, those about its snapshots in ``history``.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from safewrite.errors import (
    NotCommittedError,
    SafewriteError,
    StorageError,
    UnsafeConfigError,
    UnsupportedTableError,
)
from safewrite.findings import DANGER, INFO, WARNING, Finding, Findings, Severity
from safewrite.iceberg import branches, features, ledger_place, nested, retention
from safewrite.iceberg.catalog.foreign import load_table
from safewrite.iceberg.catalog.outcomes import classify_error
from safewrite.iceberg.catalog.s3 import direct
from safewrite.iceberg.connect import Connection, kind_of
from safewrite.iceberg.data.known_manifests import KnownManifests
from safewrite.iceberg.maintenance import aws, history, missing_files, set_back, waiting_writes
from safewrite.iceberg.maintenance.snapshot_files import ASKS
from safewrite.iceberg.metadata import head_of
from safewrite.iceberg.opening import probe as probe_catalog
from safewrite.iceberg.retention import HORIZON_MS, KEEP, KEPT_MS
from safewrite.iceberg.write.creation import DELETE_METADATA, PREVIOUS_MAX
from safewrite.protocol.effects import Missing, Ok
from safewrite.protocol.iceberg.head import TableVersion
from safewrite.protocol.iceberg.settle import METADATA_READ_MAX
from safewrite.stores import lifecycle
from safewrite.stores.s3 import S3Objects
from safewrite.stores.world import run
from safewrite.text.rendering import said
from safewrite.upkeep import shape
from safewrite.values import kept_names

if TYPE_CHECKING:
    from pyiceberg.table import Table
    from pyiceberg.table.metadata import TableMetadata

    from safewrite.stores.world import Performer

BACK_MS_MAX = 60 * 1000
"""How far times in a table's logs may go back before Iceberg's Java library refuses the table."""


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The findings about a table; ``version`` is its snapshot, -1 if it has none."""

    version: int
    findings: list[Finding]


def examine(connection: Connection, *, deep: bool = False, probe: bool = False) -> Diagnosis:
    """Judge a table; dangers come first.

    ``deep`` looks for every data file; ``probe`` asks the catalog for a commit that it must refuse.

    Raises:
        StorageError: the catalog or the store gave no answer.
    """
    findings = [*_catalog(connection), *_lock_table(connection)]
    table = _loaded(connection)
    if isinstance(table, Finding):
        return Diagnosis(-1, _sorted([*findings, table]))
    head = head_of(table, connection.branch)
    branches.check(connection, head)
    metadata = table.metadata
    findings += [*_features(metadata), *_format(metadata), *_names(metadata), *_times(metadata)]
    if not features.unwritable(metadata):
        findings += [*_metadata_files(metadata.properties), *_retention(connection, metadata)]
        findings += _ledger(connection, head)
    findings += [*aws.growth(connection, table), *aws.services(connection, table)]
    findings += _lifecycle(connection, table, head)
    findings += history.examine(connection, metadata, head)
    findings += missing_files.examine(connection, table, head, deep=deep)
    world = connection.world(head)
    world.table = table
    findings += waiting_writes.examine(world, head, connection.branch)
    findings += set_back.examine(world, head)
    if not features.unwritable(metadata):
        findings += _shape(connection, head, world)
    findings += _within(next(nested.above(world, metadata.location), None))
    if probe:
        findings += _probe(connection, head)
    return Diagnosis(head.current if head.current is not None else -1, _sorted(findings))


def _sorted(findings: list[Finding]) -> list[Finding]:
    order = list(Severity)
    return sorted(findings, key=lambda finding: order.index(finding.severity))


def _shape(connection: Connection, head: TableVersion, world: Performer) -> Findings:
    """What many small files cost; files that cannot be read others find."""
    from safewrite.iceberg.data.datafiles import target_file_size
    from safewrite.iceberg.write.compaction import inventory

    with suppress(SafewriteError):
        target = target_file_size(head.properties)
        found = run(inventory(head, KnownManifests(), target, ASKS), world)
        yield from shape.examine(found, f"{connection.table_name} --catalog {connection.catalog.name}")


# --- the catalog and its table --------------------------------------------------------------------------
def _catalog(connection: Connection) -> Findings:
    try:
        kind_of(connection.catalog)
    except UnsafeConfigError as error:
        yield Finding(
            DANGER, "dishonest_catalog", error.message,
            "Register the table in a REST, Glue or SQL catalog (register_table() copies nothing), and drop it from "
            "this one without purging.",
        )  # fmt: skip


def _lock_table(connection: Connection) -> Findings:
    if connection.lock_table is not None:
        from safewrite.stores import lock_table as lock_tables

        yield from lock_tables.findings(connection.dynamodb, connection.lock_table)


def _loaded(connection: Connection) -> Table | Finding:
    try:
        return load_table(connection.catalog, connection.identifier)
    except UnsupportedTableError:
        raise
    except FileNotFoundError as error:
        return Finding(
            DANGER, "metadata_missing",
            f"The catalog names a metadata file of {connection.table_name} that is not there, so nobody can read the "
            f"table: {said(error)}.",
            "Put the file back from a versioned copy. Else drop the table from the catalog without purging, and "
            "register_table() it with the newest metadata file that is there (its names are numbered); then write "
            "again what came later. Find who deletes metadata: an engine that cleans up after a lost answer, a "
            "lifecycle rule.",
        )  # fmt: skip
    except Exception as error:
        outcome = classify_error(error)
        if isinstance(outcome, Missing):
            return Finding(
                DANGER, "no_table",
                f"The catalog shows no Iceberg table {connection.table_name}: {type(error).__name__}: {said(error)}.",
                "Check the name; in a SQL catalog also that of the catalog, which its tables belong to. A REST catalog "
                "answers the same if the table's metadata file is gone.",
            )  # fmt: skip
        raise StorageError(
            f"The catalog does not show {connection.table_name}: {type(error).__name__}: {said(error)}. Nothing was written. "
            "Check its address and credentials."
        ) from error


def _probe(connection: Connection, head: TableVersion) -> Findings:
    try:
        probe_catalog(connection.catalog, connection.kind, head)
    except NotCommittedError as error:
        danger = isinstance(error, UnsafeConfigError)
        yield Finding(
            DANGER if danger else WARNING, "dishonest_catalog" if danger else "probe_failed", error.message,
            "Move the table to a REST, Glue or SQL catalog." if danger else "Check permissions and address.",
        )  # fmt: skip


# --- the table's metadata -----------------------------------------------------------------------------------
def _features(metadata: TableMetadata) -> Findings:
    """What safewrite may do with a table whose features it does not all honour."""
    unread, refused = features.unreadable(metadata), features.unwritable(metadata)
    reasons = {**features.keeps_files(metadata), **refused, **unread}
    if not reasons:
        return
    does = "neither reads nor writes this table" if unread else "reads this table, and does not write to it"
    does = does if refused else "reads this table, appends to it and deletes from it, and writes no row again"
    yield Finding(
        WARNING if unread else INFO, "unsupported_feature",
        f"safewrite {does}: {features.listed(reasons)}. The table itself is sound, as far as this tells.",
        features.advice(reasons),
        {"reads": not unread, "writes": False, "appends": not refused, "format_version": int(metadata.format_version)},
    )  # fmt: skip


def _format(metadata: TableMetadata) -> Findings:
    version = int(metadata.format_version)
    if version == 1:
        yield Finding(
            INFO, "format_v1",
            "The table has format version 1, without sequence numbers: once snapshots were expired, nobody can tell "
            "that a write in doubt is not among them.",
            "Upgrade it: table.transaction().upgrade_table_version(2).", {"format_version": version},
        )  # fmt: skip


def _names(metadata: TableMetadata) -> Findings:
    found = kept_names.among((field.name for field in metadata.schema().fields), kept_names.ICEBERG)
    if found:
        yield Finding(
            WARNING, "kept_name",
            f"The table has columns of names that Iceberg keeps for itself: {', '.join(found)}. Spark refuses to scan it, or to change "
            "its rows.",
            "Rename them, and give the writers the new names: with PyIceberg, table.update_schema().rename_column(\"_pos\", "
            "\"pos\").commit(). No data file is rewritten. The _file of a medallion job's bronze is renamed by the job's next run: leave it.",
            {"columns": found},
        )  # fmt: skip


def _within(outer: str | None) -> Findings:
    if outer is not None:
        yield Finding(
            WARNING, "table_within",
            f"The table is within the folder of another Iceberg table, {outer}: remove_orphan_files there, of Spark or Trino, "
            "takes the files of this one, for the outer one's metadata names none of them.",
            "Make a table at a place of its own and write the rows to it, and never clean the outer table up meanwhile.",
            {"outer": outer},
        )  # fmt: skip


def _times(metadata: TableMetadata) -> Findings:
    logs = {
        "snapshot-log": [entry.timestamp_ms for entry in metadata.snapshot_log],
        "metadata-log": [entry.timestamp_ms for entry in metadata.metadata_log],
    }
    for name, times in logs.items():
        steps = pairwise([*times, metadata.last_updated_ms] if times else [])
        back_ms = max((before - after for before, after in steps), default=0)
        if back_ms > BACK_MS_MAX:
            yield Finding(
                DANGER, "times_go_back",
                f"Times in the table's {name} go back by {back_ms / 1000:.0f} s: a writer's clock was wrong. Java "
                "readers (Spark, Trino, Flink) refuse a table whose times go back by more than a minute.",
                "Set that machine's clock (NTP). "
                + (
                    "Expire the snapshots up to the one with the wrong time, with PyIceberg: table.maintenance"
                    ".expire_snapshots().by_ids([...]).commit(); their entries leave the log."
                    if name == "snapshot-log"
                    else f"Lower {PREVIOUS_MAX} with PyIceberg until the entry has left the log."
                ),
                {"log": name, "back_ms": back_ms},
            )  # fmt: skip


def _retention(connection: Connection, metadata: TableMetadata) -> Findings:
    """Judge how long keys are remembered without a ledger (E4); SQL catalogs get theirs at the first open."""
    if connection.helpers.ledger or connection.kind == "sql":
        return
    found = retention.of(metadata, connection.branch)
    mend = (
        f"Set {KEEP} to {KEPT_MS} (15 days): safewrite repair --set-retention. Or give every writer lock_table=, "
        "whose ledger remembers keys (then name it here with --lock-table)."
    )
    if found.by_branch:
        mend = (
            f"The branch says so itself. Raise that with Spark: ALTER TABLE {connection.table_name} REPLACE BRANCH "
            f"{connection.branch} WITH SNAPSHOT RETENTION 15 DAYS. Or give every writer lock_table=, whose ledger "
            "remembers keys (then name it here with --lock-table)."
        )
    if found.text is None:
        yield Finding(
            WARNING, "retention_unset",
            f"The table does not say how long it keeps snapshots ({KEEP}); Iceberg's own default is 5 days, writes "
            "may be repeated for 14, and there is no ledger: an expired key is forgotten, and its rows may be doubled.",
            mend,
        )  # fmt: skip
    elif found.kept_ms is None:
        yield Finding(DANGER, "unreadable_retention", f"{KEEP} is {found.text!r}, which is no number.", mend)
    elif found.short:
        yield Finding(
            DANGER, "retention_too_short",
            f"Snapshots are kept for {found.text} ms, less than the {HORIZON_MS} ms (14 days) in which writes may be "
            "repeated, and there is no ledger: an expired key is forgotten, and its rows may be doubled.",
            mend, {"kept_ms": found.kept_ms},
        )  # fmt: skip


def _ledger(connection: Connection, head: TableVersion) -> Findings:
    """Tell of writers that remember keys elsewhere than the table says."""
    other = ledger_place.differs(connection, head)
    if other is not None and connection.helpers.ledger:
        yield Finding(
            WARNING, "other_ledger",
            f"The table says that its keys are remembered in {other}; these settings use another ledger.",
            "Open it as its other writers do: name their lock table (--lock-table), or none.", {"ledger": other},
        )  # fmt: skip


def _lifecycle(connection: Connection, table: Table, head: TableVersion) -> Findings:
    """Tell of rules of a bucket that take files of the table, or its keys, where a client of ours reaches it."""
    reached = direct(table.io, f"{table.location().rstrip('/')}/")
    if reached is None:
        return
    objects, base = reached
    own = direct(table.io, table.metadata_location)
    samples = [] if own is None or own[0].bucket != objects.bucket else [own[1].removeprefix(base)]
    yield from lifecycle.examine(objects.client, objects.bucket, base[:-1], lifecycle.ICEBERG, samples)
    ledger = ledger_place.object_ledger(connection, head, "") if connection.objects else None
    if ledger is None:
        return
    held, folder = ledger.objects, ledger.folder
    assert isinstance(held, S3Objects)
    listed = held.list(folder, "", 1)
    some = [one.path.removeprefix(folder) for one in listed.value] if isinstance(listed, Ok) else []  # type: ignore[attr-defined]
    yield from lifecycle.examine(held.client, held.bucket, folder[:-1], lifecycle.LEDGER, some)


def _metadata_files(properties: Mapping[str, str]) -> Findings:
    text = properties.get(PREVIOUS_MAX, "100")
    if not text.isdigit() or int(text) >= METADATA_READ_MAX:
        return
    deletes = properties.get(DELETE_METADATA, "false").lower() == "true"
    yield Finding(
        WARNING if deletes else INFO, "few_previous_versions",
        f"The table keeps track of {text} earlier metadata files only ({PREVIOUS_MAX})"
        + (f" and deletes older ones ({DELETE_METADATA})" if deletes else "")
        + ": if snapshots are expired while an answer is awaited, they are what tells whether the commit landed.",
        f"Set {PREVIOUS_MAX} to {METADATA_READ_MAX}.", {"previous_versions_max": int(text)},
    )  # fmt: skip
