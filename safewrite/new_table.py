"""Says where settings of a new table have no effect: there is a table, or none is to be created."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from safewrite.errors import InvalidInputError, TableNotFoundError

if TYPE_CHECKING:
    from safewrite.table import Table

log = logging.getLogger("safewrite")


def only_for_new(**given: Any) -> None:
    """Refuse settings of a new table where none is to be created: they would be ignored in silence.

    Raises:
        InvalidInputError: one of them was given.
    """
    names = [f"{name}=" for name, value in given.items() if value not in (None, (), {})]
    if names:
        raise InvalidInputError(
            f"{' and '.join(names)} only say{'s' * (len(names) == 1)} how a table is made, and create= is False. Nothing was "
            "written. Leave that out, or pass create=True if the table may have to be made."
        )


def warn_of_kept(table: Table, partition_by: Any, properties: Mapping[str, str]) -> None:
    """Warn which settings of a new table have no effect, for the table exists and has others."""
    try:
        own_partitions, own = table.partition_by, table._settings()  # noqa: SLF001 - of the same package
    except TableNotFoundError:
        return
    kept = []
    if isinstance(partition_by, Sequence | set) and partition_by:
        same = table._spelled(partition_by) == own_partitions  # noqa: SLF001
        kept += [] if same else [f"partition_by= (the table has {list(own_partitions)})"]
    for name, value in properties.items():
        if str(own.get(name)).lower() != value.lower():
            kept.append(f"property {name} (the table has {own.get(name)!r})")
    if kept:
        log.warning(
            "%s is there already, so this has no effect: %s.",
            table.uri,
            "; ".join(kept),
            extra={"table": table.uri},
        )
