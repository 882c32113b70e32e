"""Writes Iceberg tables by awswrangler's ``to_iceberg``, without Athena: one commit, and no temporary table."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Unpack

import safewrite as sw
from safewrite.wrangler import arguments, conditions
from safewrite.wrangler.arguments import Name
from safewrite.wrangler.columns import Columns, columns_of

if TYPE_CHECKING:
    import boto3
    import pandas as pd

log = logging.getLogger("safewrite")

_PROPERTIES = {
    "write_target_data_file_size_bytes": ("write.target-file-size-bytes", 1),
    "write_compression": ("write.parquet.compression-codec", 0),
    "vacuum_max_snapshot_age_seconds": ("history.expire.max-snapshot-age-ms", 1000),
    "vacuum_min_snapshots_to_keep": ("history.expire.min-snapshots-to-keep", 1),
}
"""Athena's names of Iceberg's properties, and what a number is multiplied by (0: it is a text)."""


def to_iceberg(  # noqa: PLR0917 - awswrangler's own signature
    df: pd.DataFrame,
    database: str,
    table: str,
    temp_path: str | None = None,
    index: bool = False,
    table_location: str | None = None,
    partition_cols: list[str] | None = None,
    merge_cols: list[str] | None = None,
    merge_condition: Literal["update", "ignore"] = "update",
    merge_match_nulls: bool = False,
    keep_files: bool = True,
    data_source: str | None = None,
    s3_output: str | None = None,
    workgroup: str = "primary",
    mode: Literal["append", "overwrite", "overwrite_partitions"] = "append",
    encryption: str | None = None,
    kms_key: str | None = None,
    boto3_session: boto3.Session | None = None,
    s3_additional_kwargs: dict[str, Any] | None = None,
    pyarrow_additional_kwargs: dict[str, Any] | None = None,
    additional_table_properties: dict[str, Any] | None = None,
    dtype: dict[str, str] | None = None,
    catalog_id: str | None = None,
    schema_evolution: bool = False,
    fill_missing_columns_in_df: bool = True,
    glue_table_settings: Mapping[str, Any] | None = None,
    *,
    catalog: Any = None,
    create_namespace: bool = False,
    **name: Unpack[Name],
) -> sw.Receipt:
    """Write a pandas DataFrame to an Iceberg table as ``awswrangler.athena.to_iceberg`` does, in one commit.

    Args:
        df: the rows; at least one.
        database, table: the table's name in the catalog; a table that is not there is made.
        index: write the index as columns too.
        table_location, partition_cols, additional_table_properties, glue_table_settings: how a new table
            is made; ``partition_cols`` of a table that is there must agree.
        merge_cols: rows of the table with the keys of the frame are replaced; the last writer wins.
        merge_condition, merge_match_nulls: ``"ignore"`` and True are refused.
        mode: ``"append"``, ``"overwrite"`` (all rows), or ``"overwrite_partitions"`` (those of the frame).
        boto3_session, catalog_id: how to reach Glue and S3.  Without a session that of ``boto3.setup_default_session`` is
            taken, where one is set.
        dtype: columns to cast, as Athena names types; a cast that would change a value is refused.
        schema_evolution: add new columns to the table, and make columns as wide as the frame's (``int`` to ``bigint``).
        fill_missing_columns_in_df: leave missing columns NULL, with a warning that names them.
        temp_path, keep_files, s3_output, workgroup, s3_additional_kwargs, pyarrow_additional_kwargs: no
            effect, for no query runs and no staging files are made.
        data_source, encryption, kms_key: refused where they ask for more than the default.
        catalog: another catalog than Glue, as for :func:`safewrite.open`.
        create_namespace: make the database too, if it is not there; else that is refused, for its name may be a slip.
        **name: ``key=`` or ``txn=``, as for :meth:`safewrite.Table.append`: a repeat is recognised.

    Raises:
        InvalidInputError, WouldAlterError: before anything was uploaded.
        MissingExtraError: PyIceberg is not installed.
        NotCommittedError, CommitUnknownError, ForeignWriterError: as for :meth:`safewrite.Table.append`.
    """
    arguments.check_name("to_iceberg", name)
    arguments.one_of("index", index, (True, False))
    arguments.one_of("mode", mode, ("append", "overwrite", "overwrite_partitions"))
    arguments.one_of("schema_evolution", schema_evolution, (True, False))
    arguments.one_of("fill_missing_columns_in_df", fill_missing_columns_in_df, (True, False))
    _refuse_athena(data_source, encryption, kms_key)
    partition_by = arguments.names("partition_cols", partition_cols)
    keys = arguments.names("merge_cols", merge_cols)
    _check_merge(keys, merge_condition, merge_match_nulls, mode, partition_by)
    settings = arguments.mapping("glue_table_settings", glue_table_settings)
    columns = columns_of(df, index=index, dtype=arguments.mapping("dtype", dtype))
    if not len(df):
        raise sw.InvalidInputError(
            "df= has no rows. Nothing was written. Leave the call out; to empty a table, safewrite.open(...).delete('true')."
        )
    boto3_session = arguments.session(boto3_session)
    found, is_new = _opened(
        (database, table),
        catalog if catalog is not None else _glue(boto3_session, catalog_id),
        boto3_session,
        partition_by=_lower(partition_by),
        properties=_properties(additional_table_properties),
        location=table_location,
        needs_location=catalog is None,
        create_namespace=arguments.one_of("create_namespace", create_namespace, (True, False)),
    )
    spelled = _Spelling(() if is_new else found.schema.names)
    columns = spelled.columns(columns)
    merge = None if is_new else _merges(found, columns, schema_evolution, fill_missing_columns_in_df)
    receipt: sw.Receipt
    if mode == "overwrite":
        receipt = found.overwrite(columns, schema_mode=merge, **name)
    elif mode == "overwrite_partitions":
        where = conditions.by_partition(columns, spelled.names(partition_by))
        receipt = found.overwrite(columns, where=where, schema_mode=merge, **name)
    elif keys:
        where = conditions.by_key(columns, spelled.names(keys))
        receipt = found.overwrite(columns, where=where, schema_mode=merge, **name)
    else:
        receipt = found.append(columns, schema_mode=merge, **name)
    if is_new:
        _comment(found, spelled, settings.get("columns_comments"))
    return receipt


# --- what is refused --------------------------------------------------------------------------------------
def _refuse_athena(data_source: object, encryption: object, kms_key: object) -> None:
    if data_source not in (None, "AwsDataCatalog"):
        raise sw.InvalidInputError(
            f"data_source={data_source!r} is a catalog of Athena, which is not asked here. Nothing was written. Give the "
            "catalog itself: catalog={'type': 'rest', 'uri': ...}."
        )
    if encryption not in (None, "SSE_S3") or kms_key is not None:
        raise sw.InvalidInputError(
            "encryption= and kms_key= are of Athena's queries, and safewrite's requests do not send them. Nothing was "
            "written. Make the key the bucket's default encryption, and leave them out."
        )


def _check_merge(
    keys: Sequence[str], condition: object, match_nulls: object, mode: str, partition_by: Sequence[str]
) -> None:
    arguments.one_of("merge_match_nulls", match_nulls, (True, False))
    if mode == "overwrite_partitions" and (not partition_by or keys):
        raise sw.InvalidInputError(
            "mode='overwrite_partitions' needs partition_cols=, and goes without merge_cols=. Nothing was written. Correct it."
        )
    if mode == "overwrite_partitions" and any("(" in one for one in partition_by):
        raise sw.InvalidInputError(
            f"mode='overwrite_partitions' replaces by the values of columns, and partition_cols={list(partition_by)} has a "
            'transform. Nothing was written. Say it by a condition: safewrite.open(...).overwrite(df, where="ts >= ... '
            'AND ts < ...").'
        )
    if not keys:
        return
    arguments.one_of("merge_condition", condition, ("update", "ignore"))
    if mode != "overwrite" and condition == "ignore":
        raise sw.InvalidInputError(
            "merge_condition='ignore' inserts only keys that the table lacks, which one overwrite cannot say. Nothing was "
            "written. Read the keys, drop those rows and append; or give merge_condition='update' if the frame may win."
        )
    if match_nulls:
        raise sw.InvalidInputError(
            "merge_match_nulls=True takes NULL for a key; two rows without a key would be one. Nothing was written. Fill "
            "the missing keys, or leave it out."
        )


# --- opening ------------------------------------------------------------------------------------------------
def _glue(session: boto3.Session | None, catalog_id: str | None) -> dict[str, str]:
    """Glue's catalog, by the settings of the session as they are now."""
    found = {"name": "awsdatacatalog", "type": "glue"}
    if catalog_id is not None:
        found["glue.id"] = str(catalog_id)
    if session is None:
        return found
    try:
        keys, region = session.get_credentials(), session.region_name
        frozen = None if keys is None else keys.get_frozen_credentials()
    except Exception as error:
        raise sw.InvalidInputError(
            f"boto3_session= gives no credentials ({type(error).__name__}: {error}). Nothing was written. Give a boto3.Session "
            "that has some, or leave it out."
        ) from error
    if frozen is not None:
        named = {
            "access-key-id": frozen.access_key,
            "secret-access-key": frozen.secret_key,
            "session-token": frozen.token,
        }
        found |= {f"{of}.{key}": value for of in ("glue", "s3") for key, value in named.items() if value}
    if region is not None:
        found |= {"glue.region": region, "s3.region": region}
    return found | _endpoints(session)


def _endpoints(session: boto3.Session) -> dict[str, str]:
    """The endpoints that a session's profile names, which PyIceberg would not see."""
    core = getattr(session, "_session", None)
    scoped = {} if core is None else core.get_scoped_config()
    if not (scoped.get("endpoint_url") or scoped.get("services")):
        return {}
    return {f"{of}.endpoint": session.client(of).meta.endpoint_url for of in ("glue", "s3")}


def _opened(
    identifier: tuple[str, str],
    catalog: Any,
    session: boto3.Session | None,
    *,
    partition_by: tuple[str, ...],
    properties: dict[str, str],
    location: str | None,
    needs_location: bool,
    create_namespace: bool,
) -> tuple[Any, bool]:
    """The table, and whether this call is to make it."""
    is_new = False
    try:
        table = sw.open(identifier, catalog=catalog, boto3_session=session).check_writable()
    except sw.TableNotFoundError:
        if location is None and needs_location:
            raise sw.InvalidInputError(
                f"There is no table {'.'.join(identifier)}, and table_location= does not say where to make it. Nothing was "
                "written. Give table_location='s3://bucket/path', or check the name."
            ) from None
        table = sw.open(
            identifier,
            catalog=catalog,
            boto3_session=session,
            create=True,
            partition_by=partition_by,
            properties=properties,
            location=location,
            create_namespace=create_namespace,
        )
        is_new = not _is_there(table)
    if not is_new and partition_by and _plain(partition_by) != _plain(table.partition_by):
        raise sw.InvalidInputError(
            f"partition_cols={list(partition_by)}, and {table.uri} is partitioned by {list(table.partition_by)}. Nothing was "
            "written. Leave partition_cols= out, or name the table's own; safewrite does not repartition."
        )
    return table, is_new


def _is_there(table: sw.Table) -> bool:
    try:
        return bool(table.schema.names)
    except sw.TableNotFoundError:
        return False


def _plain(partition_by: Sequence[str]) -> list[str]:
    """Partition fields in one spelling: ``days( ts )`` is ``day(ts)``."""
    texts = ["".join(one.split()).lower() for one in partition_by]
    return [re.sub(r"^(year|month|day|hour)s\(", r"\1(", text) for text in texts]


def _lower(partition_by: Sequence[str]) -> tuple[str, ...]:
    return tuple(one.lower() for one in partition_by)


def _properties(given: object) -> dict[str, str]:
    """Table properties as they were given, and under Iceberg's names where Athena has others."""
    found = {
        str(key): str(value) for key, value in arguments.mapping("additional_table_properties", given).items()
    }
    for athena, (iceberg, factor) in _PROPERTIES.items():
        if athena in found:
            text = found[athena]
            if factor and not text.isdecimal():
                raise sw.InvalidInputError(
                    f"additional_table_properties= has {athena}={text!r}, which is no whole number. Nothing was written. "
                    "Correct it."
                )
            found.setdefault(iceberg, str(int(text) * factor) if factor else text.lower())
    return found


# --- names and schema ---------------------------------------------------------------------------------------
class _Spelling:
    """Columns as the table spells them; new ones in lower case, as Athena names all columns."""

    def __init__(self, known: Sequence[str]) -> None:
        self._known = {name.casefold(): name for name in known}

    def names(self, given: Sequence[str]) -> tuple[str, ...]:
        return tuple(self._known.get(name.casefold(), name.lower()) for name in given)

    def columns(self, given: Columns) -> Columns:
        texts = [name for name in given if isinstance(name, str)]
        found = dict(zip(self.names(texts), (given[name] for name in texts), strict=True))
        # Names that fall together, or are no texts, are refused by the table, which names them.
        return found if len(found) == len(given) else given


def _merges(
    table: sw.Table, columns: Columns, schema_evolution: bool, fill_missing: bool
) -> Literal["merge", "widen"] | None:
    known = frozenset(table.schema.names)
    new = [name for name in columns if name not in known]
    missing = [name for name in table.schema.names if name not in columns]
    if new and not schema_evolution:
        raise sw.WouldAlterError(
            f"{table.uri} has no columns {new}, and schema_evolution= is False. Nothing was written. Give "
            "schema_evolution=True to add them, or drop them."
        )
    if missing and not fill_missing:
        raise sw.WouldAlterError(
            f"The frame lacks the columns {missing} of {table.uri}, and fill_missing_columns_in_df= is False. Nothing was "
            "written. Add them to the frame, or give fill_missing_columns_in_df=True to mean NULL."
        )
    if missing:
        log.warning(
            "%s: the frame lacks %s, which are NULL in its rows (fill_missing_columns_in_df=False refuses this).",
            table.uri,
            ", ".join(missing),
            extra={"table": table.uri},
        )
    if schema_evolution:
        return "widen"  # as Athena's CHANGE COLUMN, and to wider types alone
    return "merge" if missing else None


def _comment(table: Any, spelled: _Spelling, comments: Any) -> None:
    """Comment the columns of a table that was made just now; its rows are committed, whatever comes of it."""
    if not comments:
        return
    try:
        with table.iceberg.update_schema() as update:
            for name, text in dict(comments).items():
                update.update_column(spelled.names([name])[0], doc=str(text))
    except Exception as error:  # noqa: BLE001 - nothing takes the receipt back
        log.warning("%s: columns_comments were not stored: %s", table.uri, error, extra={"table": table.uri})
