"""Reads the table properties by which a table tells of its own rows.

Properties are copied with a table's definition: by a clone, or by whoever makes a table again.  What they tell is of the
rows of the first one, so each names its table, and counts in no other.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from safewrite.errors import Kind, StorageError
from safewrite.text.rendering import shown

if TYPE_CHECKING:
    from safewrite.protocol.iceberg.head import TableVersion

T = TypeVar("T")

BATCH = "safewrite.txn."
"""Prefix of the property that carries an app's last batch, past any expiry of snapshots."""
POSITION = "safewrite.position."
"""Prefix of the property that says how far a source was taken."""
MEMORY = "safewrite.changes.memory"
"""The property that names the file of what is remembered of deleted keys."""
MEMORY_OF = "safewrite.changes.table"
"""The property that names the table whose rows ``MEMORY`` is about."""
BRANCH = "safewrite.branch."
"""Prefix of what the table tells of the rows of other branches than the main one; see ``safewrite.iceberg.branch_properties``."""
LEDGER = "safewrite.ledger"
"""The property that says where the keys of the table's writes are remembered besides its snapshots."""
TABLE = "table"
"""The field of the others that does so.  Properties of before it was written count as the table's own."""


def is_own(name: str) -> bool:
    """Whether a property changes with a table's rows, and says nothing of how it is written."""
    return name.startswith((BATCH, POSITION, BRANCH)) or name in {MEMORY, MEMORY_OF, LEDGER}


def told(head: TableVersion, name: str, read: Callable[[Mapping[str, Any]], T]) -> T | None:
    """What ``read`` makes of a property's fields; None where the table has none of its own.

    Raises:
        StorageError: it is not as safewrite wrote it.
    """
    text = head.properties.get(name)
    if text is None:
        return None
    try:
        fields = json.loads(text)
        return read(fields) if fields.get(TABLE, head.table_id) == head.table_id else None
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise StorageError(
            f"The table's property {name!r} is {shown(text)}, which is not as safewrite wrote it. Nothing was committed. Set it "
            "back as an earlier metadata file of the table has it; or remove it, if nothing that it told counts any more.",
            kind=Kind.CORRUPT_LOG,
        ) from error


def memory_of(head: TableVersion) -> str | None:
    """Where the table's own file of what is remembered is; None where it has none."""
    is_ours = head.properties.get(MEMORY_OF, head.table_id) == head.table_id
    return head.properties.get(MEMORY) if is_ours else None
