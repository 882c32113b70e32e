"""Makes a table whose schema was declared, and says where settings of a new table have no effect."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Protocol

import pyarrow as pa

from safewrite.arguments import options
from safewrite.arguments.reading import reading
from safewrite.errors import ConflictError, InvalidInputError, Kind, TableNotFoundError
from safewrite.text.rendering import shown

log = logging.getLogger("safewrite")

_FORMAT_VERSION = "format-version"


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


def texts_or_spec(name: str, value: Any) -> Any:
    """A list of texts, or PyIceberg's own object; raises InvalidInputError for anything else."""
    with reading(f"{name}="):
        return value if hasattr(value, "fields") else options.texts(name, value)


def declared(schema: Any) -> pa.Schema:
    """A schema as it was given.

    Raises:
        InvalidInputError: it is none of pyarrow.
    """
    if not issubclass(type(schema), pa.Schema):
        raise InvalidInputError(
            f"schema is a pyarrow.Schema, not a {type(schema).__name__}. Nothing was written. Write "
            "pyarrow.schema({'id': pyarrow.int64(), ...}), or take that of a frame: pyarrow.table(frame).schema."
        )
    if not schema.names:
        raise InvalidInputError("schema has no columns. Nothing was written. Name those that the rows have.")
    return schema


def of_version(given: Any, properties: Any, *, is_iceberg: bool) -> Any:
    """The properties of a new table, with the format version that was asked for.

    Raises:
        InvalidInputError: there is no such version, the properties name another one, or it is a Delta table.
    """
    if given is None:
        return properties
    named = properties.get(_FORMAT_VERSION) if isinstance(properties, Mapping) else None
    if (
        not is_iceberg
        or not isinstance(given, int | float)
        or given not in {2, 3}
        or str(named or given) != str(int(given))
    ):
        raise InvalidInputError(
            f"format_version={shown(given)} is that of a new Iceberg table: 2, or 3, and the same as in properties=. Version 1 has no sequence "
            "numbers, and is made by nobody who is not asked for it. Nothing was written. Leave it out for 2, and for a Delta table."
        )
    return {**(properties or {}), _FORMAT_VERSION: str(int(given))}


class Made(Protocol):
    """A table that a call makes, or finds there."""

    @property
    def uri(self) -> str: ...

    @property
    def schema(self) -> pa.Schema: ...

    def create(self, schema: pa.Schema, /) -> None:
        """Create the table, empty."""

    def made_as(self, given: Layout, /) -> tuple[Layout, Layout, Mapping[str, str]]:
        """The layout that was given and that of this table, in the same spelling; its properties."""


def make(table: Made, schema: pa.Schema) -> bool:
    """Make a table that was opened with ``create=True``, empty; False if another writer has made it meanwhile."""
    try:
        table.create(schema)
    except ConflictError as error:
        if error.kind is not Kind.TABLE_EXISTS:
            raise
        return False
    return True


@dataclass(frozen=True, slots=True)
class Layout:
    """How a table is to be made, or how one is that is there: what cannot be had otherwise afterwards."""

    partition_by: tuple[str, ...] = ()
    sort_by: tuple[str, ...] = ()
    location: str = ""


def warn_of_kept(
    table: Made,
    *,
    schema: pa.Schema | None = None,
    partition_by: Any,
    sort_by: Any,
    properties: Mapping[str, str],
    location: str | None,
) -> bool:
    """Warn which settings of a new table have no effect, for the table exists and has others; False if it does not."""
    try:
        wanted, own, own_properties = table.made_as(Layout(partition_by, sort_by, location or ""))
    except TableNotFoundError:
        return False
    kept = [] if schema is None else [f"schema= ({one})" for one in _other_columns(schema, table.schema)]
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


def _other_columns(wanted: pa.Schema, own: pa.Schema) -> list[str]:
    """Where a table has other columns than were declared; two spellings of one type are one."""
    there, asked = frozenset(own.names), frozenset(wanted.names)
    missing = asked - there
    told = [f"the table has no column {name!r}" for name in wanted.names if name in missing]
    told += [f"the table has a column {name!r} more" for name in own.names if name not in asked]
    for field in wanted:
        if field.name not in missing and _family(field.type) != _family(own.field(field.name).type):
            told.append(f"column {field.name!r} of the table is {own.field(field.name).type}")
    return told


def _family(kind: pa.DataType) -> str:
    """A type without what a table format spells otherwise: units, widths, large and fixed forms, nested types' fields."""
    types = pa.types
    if types.is_dictionary(kind):
        return _family(kind.value_type)
    for name, is_one in _FAMILIES.items():
        if is_one(kind):
            return name
    return "timestamp with a zone" if types.is_timestamp(kind) and kind.tz else str(kind)


_FAMILIES: dict[str, Callable[[pa.DataType], bool]] = {
    "text": lambda kind: pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind),
    "binary": lambda kind: (
        pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind)
        or pa.types.is_fixed_size_binary(kind)
    ),
    "list": lambda kind: pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind),
    "whole number": pa.types.is_integer,
    "date": pa.types.is_date,
    "struct": pa.types.is_struct,
    "map": pa.types.is_map,
    "timestamp": lambda kind: pa.types.is_timestamp(kind) and kind.tz is None,
}  # fmt: skip
