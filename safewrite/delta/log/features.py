"""Decides which tables safewrite may read and write: protocol versions, table features, log retention.

A reader needs what the protocol lists for readers, a writer needs all (PROTOCOL.md, "Table Features"; B6).  Each such feature
is honoured, or the table is refused by the feature's name; none is ignored.  Rules that rest on the metadata (constraints,
invariants, generated columns) are applied whether or not the protocol lists their feature.  Refusing too much loses no rows.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias

from safewrite.delta.log import column_names, iceberg_compat, indexing, row_rules, stamps
from safewrite.delta.log.actions import corrupt
from safewrite.delta.log.snapshot import Snapshot
from safewrite.errors import InvalidInputError, Kind, UnsafeConfigError, UnsupportedTableError
from safewrite.values import kept_names
from safewrite.values.text_limits import DECLARED, is_nested
from safewrite.values.unsupported import reason

READER_VERSION_MAX = 3
WRITER_VERSION_MAX = 7
VECTORS, VECTORS_WANTED = "deletionVectors", "delta.enableDeletionVectors"
DOMAINS = "domainMetadata"
LOG_RETENTION_DEFAULT = "interval 30 days"

IMPLIED_BY_WRITER_VERSION: Mapping[int, tuple[str, ...]] = {
    2: ("appendOnly", "invariants"),
    3: ("checkConstraints",),
    4: ("changeDataFeed", "generatedColumns"),
    5: ("columnMapping",),
    6: ("identityColumns",),
}
"""What each legacy writer version adds (PROTOCOL.md, "Writer Version Requirements")."""

CATALOGS = ("catalogManaged", "catalogOwned-preview")
TREES = ("adaptiveMetadata", "adaptiveMetadata-preview")
CLOSED: Mapping[str, str] = {
    **dict.fromkeys(CATALOGS, "its commits belong to a catalog, and its folder does not show all of them"),
    **dict.fromkeys(TREES, "its log does not name all of its files: manifests of Iceberg 4 do"),
}
"""Features of tables that are neither read nor written by their folder, with the reason."""

WRITER_COMPAT = ("icebergWriterCompatV1", "icebergWriterCompatV3")
REFUSED: Mapping[str, str] = {
    **CLOSED,
    "coordinatedCommits-preview": "its commits belong to a coordinator, which would not know of ours",
    "managedCommit-dev": "its commits belong to a coordinator, which would not know of ours",
    **dict.fromkeys(WRITER_COMPAT, "names of columns and files would have to follow more rules of Iceberg"),
}
"""Features that are known and not honoured by writes, with the reason, whether or not the table uses them."""

MOVED, MOVED_FOR_WRITERS = "redirectReaderWriter-preview", "redirectWriterOnly-preview"
VARIANTS = ("variantType", "variantType-preview", "variantShredding", "variantShredding-preview")
"""deltalake lists ``variantType`` in every table that it makes with deletion vectors."""
BY_COLUMN = (*VARIANTS, "geospatial", "geospatial-dev", "collations", "collations-preview")
"""Features of types: a table is judged by the columns that it has."""

COPIES: Mapping[str, str] = {
    "delta.compatibility.symlinkFormatManifest.enabled": "readers by manifest (Redshift Spectrum, Athena, Presto)",
    iceberg_compat.FORMATS: "readers by Hudi's metadata",
}
"""Properties by which others read a copy of the table that safewrite does not write, and who they are."""

Rule: TypeAlias = Callable[[Snapshot], str | None]
"""Why a table cannot be written to, or None."""


def features(state: Snapshot) -> frozenset[str]:
    """Names of all features that the protocol supports, those of legacy versions included."""
    reader, writer = _versions(state)
    names = set(state.protocol.get("readerFeatures") or ()) | set(state.protocol.get("writerFeatures") or ())
    if writer < WRITER_VERSION_MAX:
        for version, implied in IMPLIED_BY_WRITER_VERSION.items():
            names.update(implied if version <= writer else ())
    if reader == 2:
        names.add("columnMapping")
    return frozenset(names)


def check_read(state: Snapshot) -> None:
    """Make sure that the table may be read by its files.

    Raises:
        UnsupportedTableError: by the name of every feature that readers would have to know.
    """
    reasons = unreadable(state)
    if reasons:
        raise UnsupportedTableError(
            f"safewrite does not read this table (id {state.table_id}, version {state.version}): {listed(reasons)}. Nothing was "
            f"read or written. {advice(reasons)}"
        )


def check_append(state: Snapshot) -> None:
    """Make sure that rows may be appended to the table.

    Raises:
        UnsupportedTableError: by the name of every feature, constraint or column that forbids it.
    """
    _refuse(state, unwritable(state))


def check_creation(state: Snapshot) -> None:
    """Make sure that a table that is made here can be written to, and has no rules that are another engine's to declare.

    Raises:
        UnsupportedTableError: as :func:`check_append`.
    """
    _refuse(state, {**unwritable(state), **_against(state, CREATION_RULES)})


def unreadable(state: Snapshot) -> Mapping[str, str]:
    """Why the table may not be read by its files, by feature; {} where it may."""
    return state.derived(_unreadable)


def unwritable(state: Snapshot) -> Mapping[str, str]:
    """Why nothing may be written to the table, by feature; {} where it may."""
    return state.derived(_unwritable)


def feeds_changes(state: Snapshot) -> bool:
    """Whether the table's change data feed is on: a commit that rewrites files then has change files."""
    return stamps.is_on(state, "delta.enableChangeDataFeed")


def check_overwrite(state: Snapshot, *, rewrites: bool = False) -> None:
    """Make sure that files may be removed, and with ``rewrites`` that files may be rewritten without change files.

    Raises:
        UnsupportedTableError: as ``check_append``; also for append-only tables, and for ``rewrites``
            of a table whose change feed would show kept rows as deleted and inserted.
    """
    reasons = dict(unwritable(state))
    if stamps.is_on(state, "delta.appendOnly"):
        reasons["appendOnly"] = "no engine may remove or change its rows (delta.appendOnly = true)"
    if rewrites and feeds_changes(state):
        reasons["changeDataFeed"] = "rewriting files would show kept rows as changed"
    _refuse(state, reasons)


def marks_rows(state: Snapshot) -> bool:
    """Whether rows may go by deletion vectors: the table wants it, and its protocol has them for readers and writers."""
    known = [state.protocol.get(name) or () for name in ("readerFeatures", "writerFeatures")]
    return stamps.is_on(state, VECTORS_WANTED) and all(VECTORS in names for names in known)


def _refuse(state: Snapshot, reasons: Mapping[str, str]) -> None:
    if reasons:
        raise UnsupportedTableError(
            f"safewrite cannot write this to the table (id {state.table_id}, version {state.version}): {listed(reasons)}. Nothing "
            f"was written. {advice(reasons)}"
        )


def listed(reasons: Mapping[str, str]) -> str:
    """Features and reasons as part of a sentence."""
    return "; ".join(f"{name}: {why}" for name, why in reasons.items())


def advice(reasons: Mapping[str, str]) -> str:
    """What to do about features that forbid something: who turns each on, and the way out."""
    others = [name for name in reasons if name not in WAYS_OUT]
    texts = [WAYS_OUT[name] for name in reasons if name in WAYS_OUT]
    if others:
        texts.append(
            f"For {', '.join(others)}: take a newer version of safewrite, or an engine that knows it, or copy the rows to a new table."
        )
    return " ".join(texts)


def _unwritable(state: Snapshot) -> dict[str, str]:
    _, writer = _versions(state)
    newer = {"protocol": f"writer version {writer} is newer than {WRITER_VERSION_MAX}"}
    return {
        **_newer_reader(state),
        **(newer if writer > WRITER_VERSION_MAX else {}),
        **_judged(
            features(state), REFUSED, HONOURED, "a feature that this version of safewrite does not know"
        ),
        **_against(state, RULES),
    }


def _unreadable(state: Snapshot) -> dict[str, str]:
    names = set(state.protocol.get("readerFeatures") or ()) | (features(state) & set(CLOSED))
    unknown = "a feature that this version of safewrite does not know, and readers must"
    return {
        **_newer_reader(state),
        **_judged(names, CLOSED, READ, unknown),
        **_against(state, READING_RULES),
    }


def _newer_reader(state: Snapshot) -> dict[str, str]:
    reader, _ = _versions(state)
    return (
        {"protocol": f"reader version {reader} is newer than {READER_VERSION_MAX}"}
        if reader > READER_VERSION_MAX
        else {}
    )


def _judged(
    names: Collection[str], refused: Mapping[str, str], known: Collection[str], unknown: str
) -> dict[str, str]:
    """Why some of these features forbid it: those that are refused, and those that are not known."""
    return {
        name: refused.get(name, unknown) for name in sorted(names) if name in refused or name not in known
    }


def _against(state: Snapshot, rules: Mapping[str, Rule]) -> dict[str, str]:
    """What the rules have against a table."""
    return {name: why for name, rule in rules.items() if (why := rule(state))}


def _versions(state: Snapshot) -> tuple[int, int]:
    reader, writer = state.protocol["minReaderVersion"], state.protocol["minWriterVersion"]
    if type(reader) is not int or type(writer) is not int:
        raise corrupt(f"The protocol action of version {state.version} has versions that are no numbers.")
    return reader, writer


# --- rules ------------------------------------------------------------------------------------------
def _constraints(state: Snapshot) -> str | None:
    prefix = row_rules.CONSTRAINT
    names = sorted(key[len(prefix) :] for key in state.properties if key.startswith(prefix))
    return f"rows would have to satisfy the check constraints {', '.join(names)}" if names else None


def _unevaluated(name: str, *keys: str) -> Rule:
    """Why rules for rows forbid it: they cannot be evaluated as Spark does, or are inside of other types, by these keys of metadata."""

    def rule(state: Snapshot) -> str | None:
        deep = [path for path in _columns_with(*keys)(state) if "." in path] if keys else []
        if deep:
            return f"values inside of other types would have to obey the rules of {', '.join(deep)}"
        return row_rules.refused(state).get(name)

    return rule


def _columns_with(*keys: str) -> Callable[[Snapshot], list[str]]:
    def find(state: Snapshot) -> list[str]:
        return [path for path, metadata in _columns(state) if any(key in metadata for key in keys)]

    return find


class _SchemaFacts(NamedTuple):
    """What rules ask of a schema: every field at any depth, with its metadata; the paths of its variants; columns without NULL."""

    fields: tuple[tuple[str, Mapping[str, Any]], ...]
    variants: tuple[str, ...]
    required: frozenset[str]


def _facts(state: Snapshot) -> _SchemaFacts:
    try:
        text = state.schema_string
        return _known_facts(text) if len(text) <= _SHORT_MAX else _known_wide(text)
    except (ValueError, RecursionError) as error:
        raise corrupt(f"The schema of version {state.version} is no JSON.") from error


def _facts_of(schema_string: str) -> _SchemaFacts:
    schema = json.loads(schema_string)
    variants = sorted(path for path, kind in _kinds(schema, "") if kind == "variant")
    required = frozenset(one["name"] for one in schema["fields"] if one.get("nullable") is False)
    return _SchemaFacts(tuple(_fields(schema, "")), tuple(variants), required)


_SHORT_MAX = 50_000
"""Letters of a schema; of longer ones only the last few are remembered, for each takes megabytes."""
_known_facts = lru_cache(maxsize=256)(_facts_of)
_known_wide = lru_cache(maxsize=4)(_facts_of)


def _columns(state: Snapshot) -> Sequence[tuple[str, Mapping[str, Any]]]:
    """Every field of the schema at any depth, with its metadata."""
    return _facts(state).fields


def _fields(kind: Any, prefix: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    if not isinstance(kind, dict):
        return
    for field in kind.get("fields") or ():
        path = f"{prefix}{field['name']}"
        yield path, field.get("metadata") or {}
        yield from _fields(field["type"], f"{path}.")
    for inner in ("elementType", "keyType", "valueType"):
        yield from _fields(kind.get(inner), f"{prefix}{inner}.")


def _variants(state: Snapshot) -> str | None:
    """Why variant columns forbid it, at any depth: new rows could not do without one, for it must not be NULL, or has a value of its own."""
    facts = _facts(state)
    computed = {
        path for path, metadata in facts.fields if {row_rules.DEFAULT, row_rules.GENERATED} & metadata.keys()
    }
    needed = facts.required | computed
    found = [path for path in facts.variants if path.partition(".")[0] in needed]
    return f"{reason('variant')}, and must be there ({', '.join(found)})" if found else None


def _unread(state: Snapshot) -> str | None:
    """Why columns forbid it that cannot be read: a frame could not bring them, and a rewrite would lose them."""
    variants = {path.partition(".")[0] for path in _facts(state).variants}
    others = [name for name in state.unread if name not in variants]
    return (
        f"values would have to be written to {', '.join(others)}, of a type that is not known"
        if others
        else None
    )


def _kinds(kind: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Every type of the schema at any depth, with the path of its column."""
    yield path, kind
    if isinstance(kind, dict):
        for field in kind.get("fields") or ():
            yield from _kinds(field["type"], f"{path}.{field['name']}".removeprefix("."))
        for inner in ("elementType", "keyType", "valueType"):
            yield from _kinds(kind.get(inner), f"{path}.{inner}")


def _iceberg_compat(name: str) -> Rule:
    """Why a table whose files Iceberg's metadata can name forbids it: it is none; the feature alone asks for nothing."""
    return lambda state: iceberg_compat.refused(state, name, features(state))


def _refuse_columns(find: Callable[[Snapshot], list[str]], why: str) -> Rule:
    def rule(state: Snapshot) -> str | None:
        found = find(state)
        return f"{why} {', '.join(found)}" if found else None

    return rule


def _feed_columns(state: Snapshot) -> str | None:
    """Why columns forbid it whose names the change data feed has too: engines could read no version of it."""
    found = kept_names.among(_names(state), kept_names.DELTA_FEED) if feeds_changes(state) else ()
    return (
        f"{', '.join(found)} are columns of its change data feed as well, which no engine could read (rename them, or switch the "
        "feed off: delta.enableChangeDataFeed = false)"
        if found
        else None
    )


def _names(state: Snapshot) -> list[str]:
    return [path for path, _ in _columns(state) if "." not in path]


def check_new_names(state: Snapshot, new: Iterable[str]) -> None:
    """Refuse names of new columns that Delta keeps in such a table, as Spark does.

    Raises:
        InvalidInputError: names the first.
    """
    kept = kept_names.of_table("delta", state.properties)
    for name in kept_names.among(new, kept):
        raise InvalidInputError(
            f"Column {name!r} has a name that Delta keeps for itself in a table with a change data feed, deletion vectors or row ids: Spark "
            f"could not read the table with it. Nothing was written. Rename the column; Delta keeps {', '.join(sorted(kept))}."
        )


def copies(properties: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """The properties that say that others read a copy of the table, which each commit must bring up to date, and what it is."""
    for name, what in COPIES.items():
        value = properties.get(name, "").strip()
        is_kept_later = name == iceberg_compat.FORMATS and iceberg_compat.formats(properties) == ["iceberg"]
        if value and value.lower() != "false" and not is_kept_later:
            yield name, what


_TRUE = ("True", "true")
"""A yes of field metadata: JSON's own, or the text that libraries without other values have for it (deltalake)."""


def _identity(state: Snapshot) -> str | None:
    """Why identity columns forbid it: no row may bring their value, or they lie inside of other types."""
    drawn = [
        path
        for path, metadata in _columns(state)
        if any(name in metadata for name in row_rules.IDENTITY)
        and ("." in path or str(metadata.get(row_rules.GIVEN)) not in _TRUE)
    ]
    return (
        f"values would have to be drawn for {', '.join(drawn)} (GENERATED ALWAYS AS IDENTITY)"
        if drawn
        else None
    )


def _copies(state: Snapshot) -> str | None:
    return (
        "; ".join(
            f"{what} would miss new rows and show deleted ones ({name} = {state.properties[name]})"
            for name, what in copies(state.properties)
        )
        or None
    )


def _column_mapping(state: Snapshot) -> str | None:
    """Why the names that columns have in files forbid it: they are missing, or of a kind that is not known."""
    if not state.mapping:
        return None
    if state.mapping not in column_names.MODES:
        return f"{column_names.MODE} is {state.properties[column_names.MODE]!r}, which is not known"
    found = column_names.unnamed(_columns(state))
    return f"the schema does not say what files call {', '.join(found)}" if found else None


def _row_tracking(state: Snapshot) -> str | None:
    """Why ids of rows forbid it: the table wants them, and its protocol does not; or nobody could keep them."""
    stamping = stamps.stamping(state)
    if stamping.numbered and DOMAINS not in features(state):
        return f"its protocol does not list {DOMAINS}, which it needs, and no reader would look for the id that was given last"
    if stamping.kept is not None:
        kept = frozenset(name.lower() for name in stamping.kept)
        clash = (
            kept_names.among(_names(state), kept) if len(kept) == len(stamping.kept) else [stamping.kept[0]]
        )
        return f"{', '.join(clash)} would hold ids of rows and something else" if clash else None
    if not stamps.is_on(state, stamps.TRACKED):
        return None
    why = "does not list the feature, or does not name the columns for them"
    why = "suspends them" if stamps.is_on(state, stamps.SUSPENDED) else why
    return f"every row would need an id ({stamps.TRACKED} = true), and the table {why}"


def _in_commit_timestamps(state: Snapshot) -> str | None:
    """Why times in commits forbid it: nothing tells that of the newest commit, and the next must be later."""
    if state.told_ms is not None or state.version < 0 or not stamps.stamping(state).timed:
        return None
    return (
        "the next commit must be later than the newest one, and neither that commit nor its checksum file tells its time "
        f"({stamps.TIMED[0]} = true)"
    )


def _text_limits(state: Snapshot) -> str | None:
    """Why text limits inside of other types forbid it; those of whole columns are checked where frames are."""
    nested = [path for path, metadata in _columns(state) if is_nested(str(metadata.get(DECLARED, "")))]
    return (
        f"texts inside of {', '.join(nested)} have a length that would have to be checked" if nested else None
    )


def _coordinator(state: Snapshot) -> str | None:
    names = [
        key for key in state.properties if key.startswith(("delta.coordinatedCommits.commitCoordinator",))
    ]
    return "its commits belong to a coordinator (table property)" if names else None


def _redirect(name: str) -> Rule:
    """Why a table that was moved to another place forbids it; the error says where."""
    key = f"delta.{name}"

    def rule(state: Snapshot) -> str | None:
        text = state.properties.get(key)
        return f"the table is at another place now: {text}" if text is not None else None

    return rule


def _read_by(read: Callable[[Snapshot], object]) -> Rule:
    """Why what says of which columns files need statistics forbids it: it cannot be read, by Spark neither."""

    def rule(state: Snapshot) -> str | None:
        try:
            read(state)
        except ValueError as error:
            return str(error)
        return None

    return rule


RULES: Mapping[str, Rule] = {
    "checkConstraints": _unevaluated("checkConstraints"),
    "invariants": _unevaluated("invariants", row_rules.INVARIANT),
    "generatedColumns": _unevaluated("generatedColumns", row_rules.GENERATED),
    "identityColumns": _identity,
    "allowColumnDefaults": _unevaluated("allowColumnDefaults", row_rules.DEFAULT),
    "changeDataFeed": _feed_columns,
    "copies for other readers": _copies,
    "columnMapping": _column_mapping,
    "rowTracking": _row_tracking,
    "inCommitTimestamp": _in_commit_timestamps,
    "coordinatedCommits": _coordinator,
    MOVED: _redirect(MOVED),
    MOVED_FOR_WRITERS: _redirect(MOVED_FOR_WRITERS),
    "variantType": _variants,
    "types": _unread,
    **{name: _iceberg_compat(name) for name in iceberg_compat.FEATURES},
    "char and varchar": _text_limits,
    "statistics": _read_by(lambda state: indexing.of(state.properties)),
    "clustering": _read_by(lambda state: indexing.clustering_of(state.domains)),
}
"""Features that are honoured as long as the table does not use them, and how use is found."""

CREATION_RULES: Mapping[str, Rule] = {
    "checkConstraints": _constraints,
    "invariants": _refuse_columns(
        _columns_with(row_rules.INVARIANT), "rows would have to obey the invariants of"
    ),
    "generatedColumns": _refuse_columns(
        _columns_with(row_rules.GENERATED), "values would have to be generated for"
    ),
    "allowColumnDefaults": _refuse_columns(_columns_with(row_rules.DEFAULT), "defaults would apply to"),
    "identityColumns": _refuse_columns(
        _columns_with(*row_rules.IDENTITY), "values would have to be drawn for"
    ),
}
"""As RULES, of a table that is made here: engines declare these by statements of their own, and check them as they do."""

READING_RULES: Mapping[str, Rule] = {
    "coordinatedCommits": _coordinator,
    MOVED: _redirect(MOVED),
}
"""As RULES, of features that readers must know."""

READ = frozenset(
    {
        *BY_COLUMN,  # the others are read
        "columnMapping",
        VECTORS,
        "timestampNtz",
        "typeWidening",
        "typeWidening-preview",
        "v2Checkpoint",
        "vacuumProtocolCheck",  # concerns VACUUM only
        MOVED,  # read where the table was not moved
    }
)
"""Features for readers that are honoured."""

_COPY = "copy the rows to a table without it, or write with an engine that has it"
WAYS_OUT: Mapping[str, str] = {
    "clustering": "clustering: name the columns again, ALTER TABLE t CLUSTER BY (c), or none: ALTER TABLE t CLUSTER BY NONE.",
    "rowTracking": "rowTracking: Databricks turns it on for materialized views and for Iceberg v3. ALTER TABLE t SET TBLPROPERTIES "
    "('delta.enableRowTracking' = 'false'), then ALTER TABLE t DROP FEATURE rowTracking.",
    "inCommitTimestamp": "inCommitTimestamp: let the engine that keeps the table's log commit once, then open the table again.",
    "columnMapping": f"columnMapping: no engine can be sure which column of a file is which. {_COPY[0].upper()}{_COPY[1:]}.",
    "checkConstraints": "checkConstraints: they were added by ALTER TABLE t ADD CONSTRAINT. ALTER TABLE t DROP CONSTRAINT takes each away. "
    "docs/refused.md has what is evaluated.",
    "invariants": f"invariants: they are in the schema that the table was made with. For them: {_COPY}.",
    "generatedColumns": f"generatedColumns: they were declared in CREATE TABLE. For them: {_COPY}.",
    "identityColumns": "identityColumns: they were declared in CREATE TABLE. Columns that are GENERATED BY DEFAULT AS IDENTITY are written, by "
    f"rows that bring their values. For others: {_COPY}.",
    "allowColumnDefaults": "allowColumnDefaults: ALTER TABLE t ALTER COLUMN c DROP DEFAULT takes each away.",
    "variantType": f"variantType: a table whose variants may be NULL and have no default is written to. For others {_COPY}.",
    "appendOnly": "appendOnly: append, or let the table's owner take the property back: ALTER TABLE t SET TBLPROPERTIES "
    "('delta.appendOnly' = 'false').",
    "changeDataFeed": "changeDataFeed: overwrite whole partitions, or apply changes by key.",
    "coordinatedCommits": "coordinatedCommits: go through the engine that knows the coordinator.",
    **{
        name: f"{name}: go through the engine that knows the coordinator."
        for name in ("coordinatedCommits-preview", "managedCommit-dev")
    },
    **{
        name: f"{name}: Unity Catalog turns it on for managed tables. Read and write the table through its catalog."
        for name in (*CATALOGS, *TREES)
    },
    **{
        name: f"{name}: its Iceberg side is written to by others. Write with the engine that made the table."
        for name in WRITER_COMPAT
    },
    **{
        name: f"{name}: UniForm, or Iceberg readers of Unity Catalog. Let the engine that keeps the table mend it: REORG TABLE t APPLY "
        "(UPGRADE UNIFORM (ICEBERG_COMPAT_VERSION = 2))."
        for name in iceberg_compat.FEATURES
    },
    **{
        name: f"{name}: open the table at the place that the property names."
        for name in (MOVED, MOVED_FOR_WRITERS)
    },
    "char and varchar": f"Declare such texts as STRING: {_COPY}.",
    "statistics": "Set the property to what Spark can read.",
}
"""Who turns a feature on, and what lets safewrite write (or read) the table."""

HONOURED = frozenset(
    {
        *BY_COLUMN,
        "appendOnly",  # appends are what it allows; overwrites are refused
        "checkpointProtection",  # concerns the clean-up of the log only, which then is left to others
        VECTORS,  # rows under one are gone for every write; written where the table wants them
        "domainMetadata",  # domains are kept in checkpoints, and none is touched
        "inCommitTimestamp-preview",
        iceberg_compat.MATERIALIZED,  # new files have the partition columns
        "timestampNtz",
        "typeWidening",
        "typeWidening-preview",
        "v2Checkpoint",  # followed in every form; such a table may have classic checkpoints, and ours are
        "vacuumProtocolCheck",  # concerns VACUUM only
        *RULES,
    }
)


# --- retention --------------------------------------------------------------------------------------
def check_retention(state: Snapshot, *, horizon_s: float, txn: bool = False) -> None:
    """Make sure that the log remembers a write for as long as it may be replayed (E4).

    ``horizon_s`` is the replay horizon; ``txn`` says that writes are named by ``(app_id, version)``.

    Raises:
        UnsafeConfigError: RETENTION_TOO_SHORT, or UNSAFE_OPTION for a duration that cannot be read.
    """
    for key, text in short_retention(state, horizon_s=horizon_s, txn=txn):
        raise UnsafeConfigError(
            f"{key} is {text!r}, shorter than the {horizon_s / 86400:g} days in which a write may be repeated: a late "
            "retry could not see that its rows are committed and would double them. Nothing is done. Raise it to 15 "
            "days or more: `safewrite repair TABLE --set-retention`, or with Spark: ALTER TABLE ... SET TBLPROPERTIES "
            f"('{key}' = 'interval 30 days').",
            kind=Kind.RETENTION_TOO_SHORT,
        )


def check_txns_stay(state: Snapshot, lost: str) -> None:
    """Make sure that the log never forgets a ``txn`` by which something else is remembered; ``lost`` says what.

    However long the duration is: the action is renewed only when that changes, and it may not for longer.

    Raises:
        UnsafeConfigError: RETENTION_TOO_SHORT.
    """
    key = "delta.setTransactionRetentionDuration"
    if key in state.properties:
        raise UnsafeConfigError(
            f"{key} is {state.properties[key]!r}: checkpoints would drop what did not change for that long: {lost}. "
            "Nothing was written. Remove it, for txns are kept "
            f"without it: ALTER TABLE ... UNSET TBLPROPERTIES ('{key}').",
            kind=Kind.RETENTION_TOO_SHORT,
        )


def short_retention(state: Snapshot, *, horizon_s: float, txn: bool) -> Iterator[tuple[str, str]]:
    """The properties by which the log forgets a write within the horizon, with their texts.

    Raises:
        UnsafeConfigError: UNSAFE_OPTION for a duration that cannot be read.
    """
    names: dict[str, str | None] = {}
    if state.properties.get("delta.enableExpiredLogCleanup", "true").strip().lower() != "false":
        names["delta.logRetentionDuration"] = LOG_RETENTION_DEFAULT
    if txn:
        names["delta.setTransactionRetentionDuration"] = None  # by default they are kept for ever
    for name, default in names.items():
        text = state.properties.get(name, default)
        if text is not None and interval_s(text, key=name) < horizon_s:
            yield name, text


_UNIT_S = {
    "microsecond": 1e-6,
    "millisecond": 1e-3,
    "second": 1,
    "minute": 60,
    "hour": 3600,
    "day": 86400,
    "week": 7 * 86400,
}
_TERM = re.compile(r"'?(-?\d+(?:\.\d+)?)'?\s*([a-z]+?)s?'?(?=\s|$)")


def interval_s(text: str, *, key: str = "interval") -> float:
    """Seconds of a Spark interval such as ``interval 1 week`` or ``2 days 12 hours``.

    Raises:
        UnsafeConfigError: UNSAFE_OPTION; it cannot be read (months and years have no fixed length).
    """
    rest = text.strip().lower().removeprefix("interval").strip()
    terms = _TERM.findall(rest)
    if not terms or _TERM.sub("", rest).strip() or any(unit not in _UNIT_S for _, unit in terms):
        raise UnsafeConfigError(
            f"{key} is {text!r}, which is no interval of weeks, days, hours, minutes or seconds. Nothing was "
            "committed. Set it to something like 'interval 30 days'."
        )
    return sum(float(number) * _UNIT_S[unit] for number, unit in terms)
