"""Makes the metadata and protocol of a write: for a new table, new columns, or a first arbiter."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa

from safewrite.delta.arbiter import PROPERTY_ARBITER
from safewrite.delta.log import column_names, features, iceberg_compat, indexing, stamps
from safewrite.delta.log.actions import Action
from safewrite.delta.log.schema import add_fields, features_needed, from_arrow, widen_fields
from safewrite.delta.log.snapshot import Snapshot
from safewrite.errors import InternalError, InvalidInputError, UnsupportedTableError
from safewrite.frames.prepare import Prepared
from safewrite.text.rendering import said

log = logging.getLogger("safewrite")

WIDENING, WIDENS = "typeWidening", "delta.enableTypeWidening"


@dataclass(frozen=True, slots=True)
class NewTable:
    """How a first write creates its table."""

    partition_by: tuple[str, ...] = ()
    properties: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CreationActions:
    """Actions that go before the files; None where nothing changes."""

    metadata: Action | None = None
    protocol: Action | None = None
    recording_arbiter: bool = False


def actions(
    state: Snapshot | None,
    prepared: Prepared,
    arbiter_properties: Mapping[str, str],
    *,
    first: NewTable | None,
    new_id: Callable[[], str],
    now_ms: int,
) -> CreationActions:
    """What this write must change besides adding files.

    Raises:
        InvalidInputError: properties that need a feature which safewrite does not write.
    """
    if state is None:
        if first is None:
            raise InternalError("A write to no table was not asked to create one. Please report it.")
        return _new_table(prepared, arbiter_properties, first, new_id, now_ms)
    metadata = {**state.metadata, "configuration": dict(state.properties)}
    missing = {k: v for k, v in arbiter_properties.items() if k not in state.properties}
    recording = PROPERTY_ARBITER in missing and arbiter_properties[PROPERTY_ARBITER] != "local"
    if recording:
        metadata["configuration"] |= dict(arbiter_properties)
    changes, protocol = prepared.added or prepared.wider, None
    if changes:
        metadata["schemaString"], highest, is_wider = _schema_with(state, prepared.added, prepared.wider)
        if highest:
            metadata["configuration"] = {**metadata["configuration"], column_names.HIGHEST: str(highest)}
        times = [one.name for one in prepared.schema if features_needed(pa.schema([one]))]
        needed = dict.fromkeys(features_needed(prepared.schema), f"times without a zone ({', '.join(times)})")
        if is_wider:
            _check_partitions(state, prepared.wider)
            metadata["configuration"] = {**metadata["configuration"], WIDENS: "true"}
            needed[WIDENING] = f"wider columns ({', '.join(one.name for one in prepared.wider)})"
        protocol = _with_features(state, needed)
        _check_iceberg(replace(state, metadata=metadata, protocol=protocol or state.protocol))
    if not recording and not changes:
        return CreationActions()
    return CreationActions(metadata, protocol, recording_arbiter=recording and not changes)


def _schema_with(
    state: Snapshot, added: Sequence[pa.Field], wider: Sequence[pa.Field]
) -> tuple[str, int, bool]:
    """The table's schema with new columns and wider ones; the highest id of a column, 0 where they have none; and whether one is wider."""
    text, is_wider = widen_fields(state.schema_string, wider)
    text = add_fields(text, added, any_name=bool(state.mapping))
    if not state.mapping:
        return text, 0, is_wider
    nested = iceberg_compat.version_of(state) > 1
    return *column_names.with_names(text, state.table_id, _highest_id(state), nested=nested), is_wider


def _check_iceberg(after: Snapshot) -> None:
    """Refuse new columns and wider ones that a table whose files Iceberg reads cannot have.

    Raises:
        InvalidInputError: it says why.
    """
    listed = features.features(after)
    for name in iceberg_compat.FEATURES:
        if why := iceberg_compat.refused(after, name, listed):
            raise InvalidInputError(
                f"The table's files are Iceberg's, too ({name}), and with these columns they could not be: {why}. Nothing was written. Leave the "
                "columns out, or give them types that Iceberg has."
            )


def unmade(first: NewTable) -> Snapshot:
    """A table before its first write, as far as its files depend on it: no column has a rule."""
    metadata = {
        "configuration": dict(first.properties),
        "partitionColumns": list(first.partition_by),
        "schemaString": '{"type": "struct", "fields": []}',
    }
    return Snapshot(-1, {}, metadata)


def with_columns(state: Snapshot, schema: pa.Schema) -> Snapshot:
    """A table with the new columns and fields of ``schema``, as a commit on this version will have it, if its files name them otherwise."""
    if not state.mapping:
        return state
    there = {one.name: one for one in state.schema}
    added = [one for one in schema if one.name not in there]
    wider = [one for one in schema if one.name in there and one.type != there[one.name].type]
    if not added and not wider:
        return state
    return replace(state, metadata={**state.metadata, "schemaString": _schema_with(state, added, wider)[0]})


def _highest_id(state: Snapshot) -> int:
    """The highest id that a column of a mapped table ever had."""
    text = state.properties.get(column_names.HIGHEST, "")
    return max(
        [int(text) if text.isascii() and text.isdigit() else 0, *column_names.every_id(state.schema_string)]
    )


def _new_table(
    prepared: Prepared,
    arbiter_properties: Mapping[str, str],
    first: NewTable,
    new_id: Callable[[], str],
    now_ms: int,
) -> CreationActions:
    configuration = {name: _text(value) for name, value in first.properties.items()}
    configuration |= arbiter_properties
    metadata: Action = {
        "id": new_id(),
        "format": {"provider": "parquet", "options": {}},
        "schemaString": from_arrow(prepared.schema),
        "partitionColumns": list(first.partition_by),
        "configuration": configuration,
        "createdTime": now_ms,
    }
    if _is_on(configuration, stamps.TRACKED):
        configuration[stamps.ID_COLUMN] = f"_row-id-col-{new_id()}"
        configuration[stamps.VERSION_COLUMN] = f"_row-commit-version-col-{new_id()}"
    protocol = _protocol(prepared, configuration)
    _check_statistics(configuration, prepared.schema, first.partition_by)
    made = Snapshot(0, protocol, metadata, told_ms=now_ms)
    features.check_new_names(made, prepared.schema.names)
    try:
        features.check_creation(made)
    except UnsupportedTableError as error:
        raise InvalidInputError(f"The table was not created: {said(error)}") from error
    return CreationActions(metadata=metadata, protocol=protocol)


def _check_statistics(
    configuration: Mapping[str, str], schema: pa.Schema, partition_by: Sequence[str]
) -> None:
    """Refuse columns for statistics that the table does not have, or has no bounds of."""
    try:
        why = indexing.check(configuration, schema, partition_by)
    except ValueError as error:
        why = str(error)
    if why is not None:
        raise InvalidInputError(
            f"The table was not created: properties= has {indexing.STATS_COLUMNS}, and {why}. Nothing was written. Name "
            "columns of the table."
        )


def _protocol(prepared: Prepared, configuration: Mapping[str, str]) -> Action:
    """The lowest protocol that carries the table, so that the oldest engines still read it."""
    needed = features_needed(prepared.schema)
    if needed:
        log.info(
            "The new table has the feature %s, for times without a zone (%s): engines that do not know it cannot read the "
            "table. Give the times a zone (dt.tz_localize('UTC')) for a table that all engines read.",
            ", ".join(needed),
            ", ".join(f.name for f in prepared.schema if features_needed(pa.schema([f]))),
        )
    if _is_on(configuration, features.VECTORS_WANTED):
        needed = (*needed, features.VECTORS)
    if _is_on(configuration, WIDENS):
        needed = (*needed, WIDENING)
    change_feed = _is_on(configuration, "delta.enableChangeDataFeed")
    ours = [stamps.TIME] if _is_on(configuration, stamps.TIMED[0]) else []
    ours += [stamps.TRACKING, "domainMetadata"] if _is_on(configuration, stamps.TRACKED) else []
    if not needed and not ours:
        return {"minReaderVersion": 1, "minWriterVersion": 4 if change_feed else 2}
    legacy = ["appendOnly", "invariants", *(["changeDataFeed"] if change_feed else [])]
    readers = {"minReaderVersion": 3, "readerFeatures": list(needed)} if needed else {"minReaderVersion": 1}
    return readers | {"minWriterVersion": 7, "writerFeatures": [*needed, *ours, *legacy]}


def _is_on(configuration: Mapping[str, str], name: str) -> bool:
    return configuration.get(name, "").strip().lower() == "true"


def check_added(state: Snapshot, added: Sequence[pa.Field]) -> None:
    """Refuse new columns of names that no Delta table has, or not this one: of many members only the one that brings it.

    Raises:
        InvalidInputError: names the first.
    """
    if added:
        features.check_new_names(state, [field.name for field in added])
        add_fields(state.schema_string, added, any_name=bool(state.mapping))


def _check_partitions(state: Snapshot, wider: Sequence[pa.Field]) -> None:
    """Refuse to widen a column that divides the table, but for whole numbers, which are spelled as before."""
    for one in wider:
        if one.name in state.partition_by and not pa.types.is_integer(one.type):
            raise InvalidInputError(
                f"Column {one.name!r} of type {state.schema.field(one.name).type} cannot become {one.type}: it is a partition "
                "column, and its values would be spelled otherwise. Nothing was written. Make a table with the wider type, or keep the type."
            )


def _with_features(state: Snapshot, needed: Mapping[str, str]) -> Action | None:
    """The protocol of a table whose columns need these features, each for what is named; None where it has them.

    All of them are of readers too.
    """
    known = {name: list(state.protocol.get(name) or ()) for name in ("readerFeatures", "writerFeatures")}
    new = {name: why for name, why in needed.items() if any(name not in names for names in known.values())}
    if not new:
        return None
    for name, why in new.items():
        log.info(
            "The table (id %s) gets the feature %s, for %s: engines that do not know it cannot read the table from now on.",
            state.table_id,
            name,
            why,
        )
    reading = {*known["readerFeatures"], *({"columnMapping"} & features.features(state)), *new}
    return {
        "minReaderVersion": 3,
        "minWriterVersion": 7,
        "readerFeatures": sorted(reading),
        "writerFeatures": sorted({*features.features(state), *new}),
    }


def _text(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return value if isinstance(value, str) else json.dumps(value)
