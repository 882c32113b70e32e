"""Checks table properties of a new Delta table: those that safewrite and other engines then keep.

A property that asks for a feature, or that no engine knows, would make a table that every later ``open``
refuses, or that Spark does ("Unknown configuration").  Source: Delta's ``DeltaConfigs`` and PROTOCOL.md.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase

from safewrite.delta.log import file_properties, indexing, stamps
from safewrite.delta.log.features import COPIES, interval_s
from safewrite.errors import InvalidInputError, Kind, UnsafeConfigError
from safewrite.text.rendering import shown

Check = Callable[[str], str | None]
"""Why a value cannot be, or None."""


def check(properties: Mapping[str, str], *, horizon_s: float) -> None:
    """Refuse properties with which a table would not be usable.

    ``horizon_s`` is for how long a write may be repeated: the log must remember it for as long (E4).

    Raises:
        InvalidInputError: a property of Delta's that is not known, or a value that it cannot have.
        UnsafeConfigError: kind RETENTION_TOO_SHORT.
    """
    for name, value in properties.items():
        if name.startswith("safewrite."):
            raise _refused(name, value, "safewrite sets its own properties itself")
        if not name.startswith("delta."):
            continue
        found = next((one for key, one in _KNOWN.items() if fnmatchcase(name, key)), None)
        if found is None:
            raise _refused(name, value, "no such property of Delta's is known; Spark refuses it as well")
        why = found(value)
        if why is not None:
            raise _refused(name, value, why)
    _check_retention(properties, horizon_s)


def _check_retention(properties: Mapping[str, str], horizon_s: float) -> None:
    cleans = properties.get("delta.enableExpiredLogCleanup", "true").lower() != "false"
    for name in ("delta.logRetentionDuration", "delta.setTransactionRetentionDuration"):
        if name not in properties or (name == "delta.logRetentionDuration" and not cleans):
            continue
        if interval_s(properties[name], key=name) < horizon_s:
            raise UnsafeConfigError(
                f"The table was not created: {name} is {properties[name]!r}, shorter than the {horizon_s / 86400:g} days "
                "in which a write may be repeated: a late retry could not see that its rows are committed, and would "
                "double them. Nothing was written. Give it 15 days or more, or leave it out (30 days).",
                kind=Kind.RETENTION_TOO_SHORT,
            )


def _refused(name: str, value: str, why: str) -> InvalidInputError:
    return InvalidInputError(
        f"The table was not created: properties= has {name}={shown(value)}, and {why}. Nothing was written. Leave it out; "
        "where the table needs it, create the table with the engine that has it."
    )


# --- values -----------------------------------------------------------------------------------------
def _flag(value: str) -> str | None:
    return None if value.strip().lower() in ("true", "false") else "it is 'true' or 'false'"


def _off(feature: str) -> Check:
    def check_off(value: str) -> str | None:
        return (
            None
            if value.strip().lower() == "false"
            else f"it needs {feature}, which safewrite does not write"
        )

    return check_off


def _one_of(*allowed: str) -> Check:
    def check_one(value: str) -> str | None:
        known = value.strip().lower() in allowed
        return None if known else f"safewrite writes tables with {' or '.join(repr(one) for one in allowed)}"

    return check_one


def _whole(least: int) -> Check:
    def check_whole(value: str) -> str | None:
        try:
            return None if int(value) >= least else f"it is a whole number from {least}"
        except ValueError:
            return f"it is a whole number from {least}"

    return check_whole


def _interval(value: str) -> str | None:
    try:
        interval_s(value)
    except UnsafeConfigError:
        return "it is a duration such as 'interval 30 days' (weeks, days, hours, minutes or seconds)"
    return None


def _indexed(value: str) -> str | None:
    try:
        return (
            None if indexing.of({indexing.NUM_INDEXED_COLS: value}).count >= -1 else "it is -1 (all) or more"
        )
    except ValueError as error:
        return str(error)


def _named(value: str) -> str | None:
    try:
        indexing.of({indexing.STATS_COLUMNS: value})
    except ValueError as error:
        return str(error)
    return None


def _any(value: str) -> str | None:
    return None


def _never(why: str) -> Check:
    return lambda value: why


_KNOWN: Mapping[str, Check] = {
    "delta.appendOnly": _flag,
    "delta.autoOptimize": _flag,
    "delta.autoOptimize.*": _any,
    "delta.checkpoint.writeStatsAsJson": _flag,
    "delta.checkpoint.writeStatsAsStruct": _flag,
    "delta.checkpointInterval": _whole(1),
    "delta.checkpointPolicy": _one_of("classic"),
    "delta.columnMapping.*": _one_of("none"),
    "delta.constraints.*": _never("rows would have to be checked against a constraint"),
    indexing.NUM_INDEXED_COLS: _indexed,
    indexing.STATS_COLUMNS: _named,
    "delta.deletedFileRetentionDuration": _interval,
    "delta.enableChangeDataFeed": _flag,
    "delta.enableDeletionVectors": _flag,
    "delta.enableExpiredLogCleanup": _flag,
    "delta.enableIcebergCompat*": _off("Iceberg's metadata"),
    stamps.TIMED[0]: _flag,
    stamps.TRACKED: _flag,
    "delta.enableTypeWidening": _flag,
    "delta.feature.*": _never("safewrite lists the features that a table needs itself"),
    "delta.inCommitTimestampEnablement*": _never(
        "engines write it where they turn commit times on in a table that is there"
    ),
    "delta.isolationLevel": _one_of("serializable"),
    "delta.logRetentionDuration": _interval,
    "delta.minReaderVersion": _never("safewrite chooses the protocol that a table needs itself"),
    "delta.minWriterVersion": _never("safewrite chooses the protocol that a table needs itself"),
    file_properties.CODEC: file_properties.why_no_codec,
    "delta.randomPrefixLength": _whole(1),
    "delta.randomizeFilePrefixes": _off("random prefixes of files"),
    "delta.rowTracking.*": _never("safewrite chooses the names of the columns for ids itself"),
    stamps.SUSPENDED: _never("it stops row ids for the time of a repair of the table"),
    "delta.sampleRetentionDuration": _interval,
    "delta.setTransactionRetentionDuration": _interval,
    file_properties.TARGET: file_properties.why_no_size,
    "delta.tuneFileSizesForRewrites": _flag,
    **{name: _off(f"a copy for {who}") for name, who in COPIES.items()},
}
