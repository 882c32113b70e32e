"""Reads the position of an event of Debezium from its ``source`` block.

A transaction counts where it commits, not where it changes a row: one that was under way when a snapshot was taken changed
its rows before the snapshot and is not in it.

Source of the rules: the ``source`` blocks in Debezium's documentation of each connector.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from safewrite.cdc.envelopes.position import padded
from safewrite.cdc.records.change import Beginning, UndecodableError


def of_debezium(source: Mapping[str, Any], transaction: Mapping[str, Any] | None) -> str:
    """The position in a Debezium event's ``source`` block.

    Raises:
        UndecodableError: a connector whose positions are not known, or an event without one.
    """
    connector = str(source.get("connector") or "")
    read = _CONNECTORS.get(connector)
    if read is None:
        known = ", ".join(sorted(_CONNECTORS))
        raise UndecodableError(
            f"the connector {connector!r} has no position that is known here (known: {known}); order the table by columns of "
            "its rows: precombine_key"
        )
    return read(source, transaction or {})


def _postgresql(source: Mapping[str, Any], transaction: Mapping[str, Any]) -> str:
    # Events come in the order of commits, and each tells the commit before its own transaction's: no row of a snapshot that
    # came earlier lies behind that.  Within one row the LSN orders, for its changes wait for each other.
    lsn = padded(source.get("lsn"), 20, "lsn")
    committed = max(lsn, _last_commit(source) or "")
    rank = _SNAPSHOT_ROW if is_of_snapshot(source) else _CHANGE
    return committed + rank + lsn + padded(transaction.get("total_order") or 0, 10, "total_order")


_SNAPSHOT_ROW, _CHANGE = "0", "1"


def _last_commit(source: Mapping[str, Any]) -> str | None:
    """The LSN of the last commit that the connector saw before an event; None before the first, and in old versions."""
    try:
        committed = json.loads(source.get("sequence") or "[null]")[0]
    except (ValueError, TypeError, LookupError) as error:
        raise UndecodableError(
            f"the event's sequence {source.get('sequence')!r} is none of PostgreSQL's"
        ) from error
    return None if committed is None else padded(committed, 20, "sequence")


def is_of_snapshot(source: Mapping[str, Any]) -> bool:
    """Whether an event tells of a row that a snapshot read."""
    return source.get("snapshot") not in {None, False, "false"}


def beginning_of(source: Mapping[str, Any]) -> Beginning | None:
    """Where an event stands at the beginning of a stream; None for all others."""
    if source.get("connector") != "postgresql" or _last_commit(source) is not None:
        return None
    return Beginning.SNAPSHOT_ROW if is_of_snapshot(source) else Beginning.CHANGE


def _mysql(source: Mapping[str, Any], _: Mapping[str, Any]) -> str:
    file = str(source.get("file") or "")
    number = re.search(r"\.([0-9]+)$", file)
    if number is None:
        raise UndecodableError(f"the binlog file {file!r} has no number")
    parts = (
        (number[1], 10, "file"),
        (source.get("pos"), 20, "pos"),
        (source.get("row") or 0, 10, "row"),
    )
    return "".join(padded(*part) for part in parts)


def _sql_server(source: Mapping[str, Any], _: Mapping[str, Any]) -> str:
    # A row of a snapshot has no change_lsn: it is older than every change of its commit_lsn.
    commit = _sql_server_lsn(source.get("commit_lsn"), "commit_lsn")
    change = source.get("change_lsn")
    within = "0" * 20 if change is None else _sql_server_lsn(change, "change_lsn")
    return commit + within + padded(source.get("event_serial_no") or 0, 10, "event_serial_no")


def _sql_server_lsn(value: Any, name: str) -> str:
    parts = str(value).split(":")
    try:
        numbers = [int(part, 16) for part in parts]
    except ValueError:
        numbers = []
    if len(numbers) != 3 or numbers[2] > 0xFFFF or max(numbers) > 0xFFFFFFFF:
        raise UndecodableError(f"{name} {value!r} is no LSN of SQL Server")
    return f"{numbers[0]:08X}{numbers[1]:08X}{numbers[2]:04X}"


def _db2(source: Mapping[str, Any], _: Mapping[str, Any]) -> str:
    # As of SQL Server, after whose connector this one is made; its numbers are of up to 16 bytes, in hexadecimal digits.
    commit, change = (source.get(name) for name in ("commit_lsn", "change_lsn"))
    within = "0" * 32 if change is None else _db2_lsn(change, "change_lsn")
    return _db2_lsn(commit, "commit_lsn") + within


def _db2_lsn(value: Any, name: str) -> str:
    digits = str(value).replace(":", "").upper()
    if not re.fullmatch("[0-9A-F]{1,32}", digits):
        raise UndecodableError(f"{name} {value!r} is not an LSN of Db2")
    return digits.zfill(32)


def _oracle(source: Mapping[str, Any], _: Mapping[str, Any]) -> str:
    # A snapshot at SCN s holds what was committed up to s, so s counts as its commit.
    scn = padded(source.get("scn"), 20, "scn")
    commit = source.get("commit_scn")
    committed = (
        scn if commit is None else max(padded(one, 20, "commit_scn") for one in str(commit).split(","))
    )
    redo = [part.strip() for part in str(source.get("rs_id") or "").removeprefix("0x").split(".")]
    redo = [part.removeprefix("0x") for part in redo]
    if redo == [""]:
        redo = ["0", "0", "0"]
    try:
        block = "".join(f"{int(part, 16):012X}" for part in redo)
    except ValueError:
        block = ""
    if len(block) != 36:
        raise UndecodableError(f"rs_id {source.get('rs_id')!r} is none of Oracle's")
    return committed + scn + block + padded(source.get("ssn") or 0, 10, "ssn")


_CONNECTORS: Mapping[str, Callable[[Mapping[str, Any], Mapping[str, Any]], str]] = {
    "postgresql": _postgresql,
    "mysql": _mysql,
    "mariadb": _mysql,
    "sqlserver": _sql_server,
    "oracle": _oracle,
    "db2": _db2,
}
