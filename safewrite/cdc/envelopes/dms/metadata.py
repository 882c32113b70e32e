"""Reads the metadata of a record of AWS DMS: its position and its time.

Source of the rules: AWS DMS, "IncludeTransactionDetails" of the Kafka endpoint settings.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from safewrite.cdc.envelopes.position import padded
from safewrite.cdc.records.change import UndecodableError

DATA, METADATA = "data", "metadata"
"""The fields of a record that have its row and what is said of it."""
_POSTGRES = re.compile(r"([0-9A-Fa-f]{1,8})/([0-9A-Fa-f]{1,8})(?:\..*)?")
_MYSQL = re.compile(r"[^:]*\.([0-9]+):([0-9]+)(?::.*)?")
_SQL_SERVER = re.compile(r"([0-9A-Fa-f]{8}):([0-9A-Fa-f]{8}):([0-9A-Fa-f]{4})(?::.*)?")
_NUMBER = re.compile(r"[0-9]{1,20}")


def of_dms(metadata: Mapping[str, Any]) -> str:
    """The position in the metadata of an AWS DMS record.

    Raises:
        UndecodableError: there is none, or one of a form that is not known.
    """
    position, number = metadata.get("stream-position"), metadata.get("transaction-record-id")
    if not isinstance(position, str) or not position or number is None:
        raise UndecodableError(
            "the record has no stream-position and transaction-record-id, and transaction ids are not unique; set "
            "IncludeTransactionDetails of the DMS endpoint, or order the table by columns of its rows: precombine_key"
        )
    within = padded(number, 20, "transaction-record-id")
    if match := _POSTGRES.fullmatch(position):
        return f"{match[1].upper():0>8}{match[2].upper():0>8}.{within}"
    if match := _SQL_SERVER.fullmatch(position):
        return f"{match[1].upper()}{match[2].upper()}{match[3].upper()}.{within}"
    if match := _MYSQL.fullmatch(position):
        return f"{padded(match[1], 10, 'binlog file')}{padded(match[2], 20, 'binlog position')}.{within}"
    if _NUMBER.fullmatch(position):
        return f"{position:0>20}.{within}"
    raise UndecodableError(f"the stream-position {position!r} has a form that is not known here")


def milliseconds(text: Any) -> int | None:
    """A time of the metadata, in milliseconds since 1970; None for what is no time."""
    try:
        found = datetime.fromisoformat(str(text))
    except ValueError:
        return None
    return int((found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp() * 1000)
