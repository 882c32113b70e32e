"""Tells how soon a table's metadata file is too large for AWS, and which of its services expire snapshots."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from safewrite.findings import DANGER, INFO, WARNING, Finding, Findings
from safewrite.iceberg import ledger_place, retention
from safewrite.iceberg.retention import AWS_KEPT_MS, KEEP
from safewrite.text.rendering import said

if TYPE_CHECKING:
    from pyiceberg.table import Table

    from safewrite.iceberg.connect import Connection

log = logging.getLogger("safewrite")

MB = 1_000_000
GLUE_MB, S3_TABLES_MB = 20, 5
"""How large a metadata file may be: reported by users of Glue and of S3 Tables; neither is in AWS's lists of quotas."""
DAY_MS = 24 * 3600 * 1000
SOON_DAYS = 14
_READ_MAX = 20
"""How many earlier metadata files are looked for; old ones may be gone."""


def growth(connection: Connection, table: Table) -> Findings:
    """The size of the metadata file, what it grows by, and when it is full where AWS bounds it."""
    size = _size(table, table.metadata_location)
    limit_mb = _limit_mb(connection)
    if size is None or (limit_mb is None and size < MB):
        return
    a_day = _grows_by(table, size)
    left_days = None
    if limit_mb is not None and a_day is not None and a_day > 0:
        left_days = max(0.0, (limit_mb * MB - size) / a_day)
    severity = INFO
    if limit_mb is not None:
        if size > 0.8 * limit_mb * MB:
            severity = DANGER
        elif left_days is not None and left_days < SOON_DAYS:
            severity = WARNING
    text = f"The metadata file has {size / MB:.2f} MB"
    text += "" if a_day is None else f" and grows by {a_day / MB:.2f} MB a day"
    if limit_mb is not None:
        text += f"; {_service(connection)} rejects more than {limit_mb} MB"
        text += "" if left_days is None else f", which it reaches in {left_days:.0f} days"
    yield Finding(
        severity, "metadata_size", f"{text}.",
        f"Expire snapshots sooner: with a ledger of keys {KEEP} may be {AWS_KEPT_MS} (three days) or less, and a service or "
        "engine must then expire them. Write less often: append_many() is one snapshot for many writes.",
        {"bytes": size, "bytes_a_day": None if a_day is None else int(a_day), "limit_mb": limit_mb, "days_left": left_days},
    )  # fmt: skip


def _limit_mb(connection: Connection) -> int | None:
    if ledger_place.in_s3_tables(connection.catalog):
        return S3_TABLES_MB
    return GLUE_MB if connection.kind == "glue" else None


def _service(connection: Connection) -> str:
    return "S3 Tables" if ledger_place.in_s3_tables(connection.catalog) else "Glue"


def _size(table: Table, location: str) -> int | None:
    try:
        return len(table.io.new_input(location))
    except Exception:  # noqa: BLE001 - an old file may be gone; another finding says it of the current one
        return None


def _grows_by(table: Table, size: int) -> float | None:
    """Bytes a day, since the earliest metadata file that is still there; None where that is less than an hour ago."""
    for entry in table.metadata.metadata_log[:_READ_MAX]:
        spent_ms = table.metadata.last_updated_ms - entry.timestamp_ms
        if spent_ms < DAY_MS / 24:
            return None
        before = _size(table, entry.metadata_file)
        if before is not None:
            return (size - before) / spent_ms * DAY_MS
    return None


# --- who expires snapshots -------------------------------------------------------------------------------
def services(connection: Connection, table: Table) -> Findings:
    """Services of AWS that expire snapshots, or remove files, of this table by settings of their own."""
    if ledger_place.in_s3_tables(connection.catalog):
        yield from _asked(
            connection, "s3tables:GetTableMaintenanceConfiguration", lambda: _s3_tables(connection)
        )
    elif connection.kind == "glue":
        yield from _asked(connection, "glue:GetTableOptimizer", lambda: _optimizers(connection, table))


def _asked(connection: Connection, action: str, ask: Callable[[], list[Finding]]) -> Findings:
    try:
        yield from ask()
    except Exception as error:  # noqa: BLE001 - a role may not be allowed to ask
        if not _is_aws(connection):
            return  # an emulator that lacks the call has no such service
        yield Finding(
            INFO, "expiry_unknown",
            f"{_service(connection)} was not to be asked whether it expires snapshots of the table by itself ({action}): "
            f"{type(error).__name__}: {said(error)}.",
            f"Allow {action}, or look at the table's settings in the console.",
        )  # fmt: skip


def _is_aws(connection: Connection) -> bool:
    glue = getattr(connection.catalog, "glue", None)
    address = connection.catalog.properties.get("uri") if glue is None else glue.meta.endpoint_url
    return ".amazonaws.com" in str(address)


def compacted_by(connection: Connection, table: Table) -> str:
    """The service that puts small files of the table together by itself; "" where there is none, or nobody can be asked."""
    try:
        if ledger_place.in_s3_tables(connection.catalog):
            found = _s3_settings(connection).get("icebergCompaction", {})
            return "" if found.get("status") == "disabled" else "S3 Tables"
        if connection.kind == "glue" and _optimizer(connection, table, "compaction") is not None:
            return "Glue's optimizer"
    except Exception as error:  # noqa: BLE001 - a role may not be allowed to ask
        log.info(
            "whether AWS puts files of %s together was not to be asked: %s", connection.table_name, error
        )
    return ""


def _optimizer(connection: Connection, table: Table, kind: str) -> Mapping[str, Any] | None:
    """The settings of one of Glue's optimizers; None where the table has none that is on."""
    glue: Any = connection.catalog.glue  # type: ignore[attr-defined]
    database, name = table.name()[-2:]
    shown = glue.get_table(DatabaseName=database, Name=name)["Table"]
    try:
        answer = glue.get_table_optimizer(
            CatalogId=shown.get("CatalogId", ""), DatabaseName=database, TableName=name, Type=kind
        )
    except glue.exceptions.EntityNotFoundException:
        return None
    settings: Mapping[str, Any] = answer.get("TableOptimizer", {}).get("configuration", {})
    return settings if settings.get("enabled") else None


def _optimizers(connection: Connection, table: Table) -> list[Finding]:
    found = []
    for kind in ("retention", "orphan_file_deletion"):
        settings = _optimizer(connection, table, kind)
        if settings is None:
            continue
        if kind == "retention":
            kept = settings.get("retentionConfiguration", {}).get("icebergConfiguration", {})
            days = kept.get("snapshotRetentionPeriodInDays", 5)
            found.append(
                _expires(connection, "Glue's optimizer", days * 24, kept.get("numberOfSnapshotsToRetain", 1))
            )
        else:
            found.append(Finding(
                INFO, "orphan_files_removed",
                "Glue's optimizer removes files of the table's folder that no metadata names.",
                "None of safewrite's own files are there; a write must take less than its time (3 days by default).",
            ))  # fmt: skip
    return found


def _s3_settings(connection: Connection) -> Mapping[str, Any]:
    """What S3 Tables does with the table by itself, by kind."""
    from safewrite.stores.clients import shared_client

    properties = connection.catalog.properties
    options = {
        "AWS_REGION": str(properties.get("rest.signing-region") or properties.get("client.region") or "")
    }
    client = shared_client("s3tables", None, {name: value for name, value in options.items() if value})
    answer = client.get_table_maintenance_configuration(
        tableBucketARN=_bucket_arn(properties),
        namespace=connection.identifier[-2],
        name=connection.identifier[-1],
    )
    found: Mapping[str, Any] = answer.get("configuration", {})
    return found


def _s3_tables(connection: Connection) -> list[Finding]:
    settings = _s3_settings(connection).get("icebergSnapshotManagement", {})
    if settings.get("status") == "disabled":
        return []
    kept = settings.get("settings", {}).get("icebergSnapshotManagement", {})
    return [
        _expires(
            connection, "S3 Tables", kept.get("maxSnapshotAgeHours", 120), kept.get("minSnapshotsToKeep", 1)
        )
    ]


def _bucket_arn(properties: Mapping[str, Any]) -> str:
    """The table bucket, as its own REST catalog names it, or Glue's: ``account:s3tablescatalog/bucket``."""
    warehouse = str(properties.get("warehouse", ""))
    if warehouse.startswith("arn:"):
        return warehouse
    account, _, bucket = warehouse.partition(":s3tablescatalog/")
    return f"arn:aws:s3tables:{properties.get('rest.signing-region', '')}:{account}:bucket/{bucket}"


def _expires(connection: Connection, who: str, hours: int, count: int) -> Finding:
    forgets = not connection.helpers.ledger and hours * 3_600_000 < retention.HORIZON_MS
    text = f"{who} expires snapshots of the table after {hours} hours and keeps {count}"
    return Finding(
        DANGER if forgets else INFO, "snapshots_expired_by_service",
        text + (
            ", while writes may be repeated for 14 days and there is no ledger: an expired key is forgotten, and its rows may "
            "be doubled." if forgets else "; keys are in a ledger."
        ),
        "Open the table with lock_table= for a ledger of keys, or let the service keep snapshots for 15 days."
        if forgets else "Readers that follow snapshots must come within that time.",
        {"service": who, "kept_hours": hours, "kept_snapshots": count},
    )  # fmt: skip
