"""Says where settings of a new table have no effect: there is a table, or none is to be created."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import asdict, dataclass
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


@dataclass(frozen=True, slots=True)
class Layout:
    """How a table is to be made, or how one is that is there: what cannot be had otherwise afterwards."""

    partition_by: tuple[str, ...] = ()
    sort_by: tuple[str, ...] = ()
    location: str = ""


def warn_of_kept(
    table: Table, *, partition_by: Any, sort_by: Any, properties: Mapping[str, str], location: str | None
) -> bool:
    """Warn which settings of a new table have no effect, for the table exists and has others; False if it does not."""
    try:
        own_properties = table._settings()  # noqa: SLF001 - of the same package
        wanted, own = table._layouts(Layout(partition_by, sort_by, location or ""))  # noqa: SLF001
    except TableNotFoundError:
        return False
    kept = []
    for name, given in asdict(wanted).items():
        has = getattr(own, name)
        if given and given != has:
            shown = list(has) if isinstance(has, tuple) else repr(has)
            kept.append(f"{name}= (the table has {shown})")
    for name, value in properties.items():
        if str(own_properties.get(name)).lower() != value.lower():
            kept.append(f"property {name} (the table has {own_properties.get(name)!r})")
    if kept:
        log.warning(
            "%s is there already, so this has no effect: %s.",
            table.uri,
            "; ".join(kept),
            extra={"table": table.uri},
        )
    return True
