"""Reads what any ledger remembers of the latest commits, for whoever compares it with a table."""

from __future__ import annotations

from typing import Any

from safewrite.protocol.effects import Ok
from safewrite.protocol.keys import MARK
from safewrite.protocol.values import LedgerRecord
from safewrite.stores.ledger import ObjectLedger
from safewrite.stores.local import SqliteLedger

OBJECTS_MAX, ROWS_MAX = 100, 10_000
"""How many objects of a ledger are read, or rows of a database."""
SCAN_PAGES_MAX = 200
"""How many pages of 1 MB of a lock table are read, for its keys are in no order."""


def committed(ledger: Any) -> list[LedgerRecord]:
    """Records of commits, as far as the ledger answers: other findings say what is wrong with it."""
    if not hasattr(ledger, "records") or (isinstance(ledger, SqliteLedger) and not ledger.file.exists()):
        return []
    if hasattr(ledger, "table_path"):
        found = _in_dynamodb(ledger)
    else:
        answer = ledger.records(OBJECTS_MAX if isinstance(ledger, ObjectLedger) else ROWS_MAX)
        found = answer.value[0] if isinstance(answer, Ok) else []  # type: ignore[index]
    return [one for one in found if one.version is not None and one.key != MARK]


def _in_dynamodb(ledger: Any) -> list[LedgerRecord]:
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        found: list[LedgerRecord] = ledger.records(SCAN_PAGES_MAX)[0]
    except (BotoCoreError, ClientError):
        return []
    return found
