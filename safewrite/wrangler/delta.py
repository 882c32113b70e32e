"""Writes Delta tables by awswrangler's ``to_deltalake``, with the arbiter that its arguments name."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Unpack

import safewrite as sw
from safewrite.wrangler import arguments
from safewrite.wrangler.arguments import Name
from safewrite.wrangler.columns import Columns, columns_of

if TYPE_CHECKING:
    import boto3
    import pandas as pd

_LOCK_TABLE = "DELTA_DYNAMO_TABLE_NAME"
_FIRST = "to_deltalake: the first write of the table"
"""The key of each write that is to find no table: of those that race, one lands, and the others see another's rows."""
_NOT_SENT = frozenset(
    {
        "acl",
        "bucketkeyenabled",
        "requestpayer",
        "serversideencryption",
        "ssebucketkeyenabled",
        "ssecustomeralgorithm",
        "ssecustomerkey",
        "ssecustomerkeybase64",
        "ssekmsencryptioncontext",
        "ssekmskeyid",
        "storageclass",
        "tagging",
    }
)
"""Settings of S3 requests that safewrite's own do not have, in the spellings of boto3 and of object_store."""
_ENCRYPTION = frozenset({"AWS_SERVER_SIDE_ENCRYPTION", "AWS_SSE_KMS_KEY_ID", "AWS_SSE_BUCKET_KEY_ENABLED"})
"""Those that they have, as deltalake spells them."""


def to_deltalake(  # noqa: PLR0917 - awswrangler's own signature
    df: pd.DataFrame,
    path: str,
    index: bool = False,
    mode: Literal["error", "append", "overwrite", "ignore"] = "append",
    dtype: dict[str, str] | None = None,
    partition_cols: list[str] | None = None,
    schema_mode: Literal["overwrite", "merge"] | None = None,
    lock_dynamodb_table: str | None = None,
    s3_allow_unsafe_rename: bool = False,
    boto3_session: boto3.Session | None = None,
    s3_additional_kwargs: dict[str, str] | None = None,
    **name: Unpack[Name],
) -> sw.Receipt | None:
    """Write a pandas DataFrame to a Delta table as ``awswrangler.s3.to_deltalake`` does, in one commit.

    Args:
        df: the rows.
        path: ``s3://bucket/path``; a table that is not there is made.
        index: write the index as columns too.
        mode: ``"append"``, ``"overwrite"`` (all rows), ``"error"`` or ``"ignore"`` where the table is there.
        dtype: columns to cast, as Athena names types; a cast that would change a value is refused.
        partition_cols: how a new table is partitioned; one that is there must agree.
        schema_mode: ``"merge"`` to add new columns and leave missing ones NULL; ``"overwrite"``, with
            ``mode="overwrite"``, to add new ones (columns do not go and keep their types).
        lock_dynamodb_table: the DynamoDB table that decides who gets a version.  Without it the table's
            own record decides, and conditional PUT where there is none.
        s3_allow_unsafe_rename: True is refused.
        boto3_session, s3_additional_kwargs: how to reach S3 and DynamoDB; the latter are deltalake's keys.  Without a session
            that of ``boto3.setup_default_session`` is taken, where one is set.
        **name: ``key=`` or ``txn=``, as for :meth:`safewrite.Table.append`: a repeat is recognised.

    Returns:
        The receipt; None where ``mode="ignore"`` found a table.

    Raises:
        InvalidInputError, UnsafeConfigError, WouldAlterError: before anything was uploaded.
        ConflictError: kind TABLE_EXISTS, with ``mode="error"``.
        NotCommittedError, CommitUnknownError, ForeignWriterError: as for :meth:`safewrite.Table.append`.
    """
    arguments.check_name("to_deltalake", name)
    arguments.one_of("index", index, (True, False))
    arguments.one_of("mode", mode, ("append", "overwrite", "error", "ignore"))
    arguments.one_of("schema_mode", schema_mode, (None, "merge", "overwrite"))
    _refuse_unsafe(s3_allow_unsafe_rename)
    if schema_mode == "overwrite" and mode != "overwrite":
        raise sw.InvalidInputError(
            f"schema_mode='overwrite' goes with mode='overwrite', not {mode!r}. Nothing was written. Give "
            "schema_mode='merge' to add columns."
        )
    if name and mode in ("error", "ignore"):
        raise sw.InvalidInputError(
            f"mode={mode!r} writes only the first rows of a table, which need no {next(iter(name))}=. Nothing was written. "
            "Leave it out; or give mode='append', which recognises a repeat by it."
        )
    partition_by = arguments.names("partition_cols", partition_cols)
    columns = columns_of(df, index=index, dtype=arguments.mapping("dtype", dtype))
    table = opened(path, lock_dynamodb_table, boto3_session, s3_additional_kwargs, partition_by=partition_by)
    if mode in ("error", "ignore"):
        return _write_first(table, columns, fails=mode == "error")
    merge = _merges(table, columns, schema_mode)
    if mode == "overwrite":
        return table.overwrite(columns, schema_mode=merge, **name)
    return table.append(columns, schema_mode=merge, **name)


def _refuse_unsafe(allow: object) -> None:
    arguments.one_of("s3_allow_unsafe_rename", allow, (True, False))
    if allow:
        raise sw.UnsafeConfigError(
            "s3_allow_unsafe_rename=True lets writers overwrite each other's commits. Nothing was written. Leave it out: "
            "with lock_dynamodb_table= DynamoDB decides who gets a version, without it conditional PUT does."
        )


def _write_first(table: sw.Table, columns: Columns, *, fails: bool) -> sw.Receipt | None:
    """Write the first rows of a table, unless it is there."""
    if table.version < 0:
        try:
            receipt = table.append(columns, key=_FIRST)
        except (sw.ReplayMismatchError, sw.WouldAlterError):
            if table.refresh().version < 0:
                raise  # no rival's table: it is the frame
        else:
            if not fails or receipt.outcome == "committed":
                return receipt
    if not fails:
        return None
    raise sw.ConflictError(
        f"There is a table at {table.uri} already, and mode='error' writes only a new one. Nothing was written. Give "
        "mode='append' or 'overwrite'; if a call before this one ended in doubt, the table may be its own.",
        kind=sw.Kind.TABLE_EXISTS,
    )


def _merges(table: sw.Table, columns: Columns, schema_mode: str | None) -> Literal["merge"] | None:
    if schema_mode is None:
        return None
    known = table.schema.names if table.version >= 0 else []
    gone = [name for name in known if name not in columns]
    if schema_mode == "overwrite" and gone:
        raise sw.InvalidInputError(
            f"schema_mode='overwrite' would take {gone} out of the table, which safewrite cannot. Nothing was written. "
            "Write to a new path; or give schema_mode='merge', which leaves these columns NULL."
        )
    return "merge"


# --- opening ------------------------------------------------------------------------------------------
def opened(
    path: str,
    lock_table: str | None,
    session: boto3.Session | None,
    s3_additional_kwargs: Mapping[str, str] | None,
    *,
    partition_by: Sequence[str] = (),
) -> sw.Table:
    """Open the table with the arbiter that the arguments name, else its own.

    Raises:
        UnsafeConfigError: another arbiter guards the table.
        InvalidInputError: it is partitioned otherwise.
    """
    options = _options(s3_additional_kwargs)
    reach: dict[str, Any] = {
        "boto3_session": arguments.session(session, options), "storage_options": options
    }  # fmt: skip
    arbiter = _arbiter(path, lock_table, reach["storage_options"])
    try:
        table = _found(path, arbiter, reach)
    except sw.TableNotFoundError:
        table = sw.open(path, create=True, partition_by=tuple(partition_by), **arbiter, **reach)
    table.check_writable()
    if table.version >= 0 and partition_by and tuple(partition_by) != table.partition_by:
        raise sw.InvalidInputError(
            f"partition_cols={list(partition_by)}, and the table at {table.uri} is partitioned by "
            f"{list(table.partition_by)}. Nothing was written. Leave partition_cols= out, or write to a new path."
        )
    return table


def _arbiter(path: object, lock_table: str | None, options: Mapping[str, str] | None) -> dict[str, Any]:
    """The setting of ``safewrite.open`` that names the arbiter; none where it finds it by itself."""
    if lock_table is not None:
        return {"lock_table": lock_table}
    named = {key.upper() for key in options or {}} | set(os.environ)
    is_s3 = str(path).strip().startswith(("s3:", "s3a:", "s3n:"))
    return {"arbiter": "object-store"} if is_s3 and _LOCK_TABLE not in named else {}


def _found(path: str, arbiter: Mapping[str, Any], reach: Mapping[str, Any]) -> sw.Table:
    """Open a table that is there; without a lock table by the one that it records."""
    table: sw.Table
    try:
        table = sw.open(path, **arbiter, **reach)
    except sw.UnsafeConfigError as error:
        if error.kind is not sw.Kind.ARBITER_MISMATCH:
            raise
        if "lock_table" in arbiter:
            error.add_note(
                "For to_deltalake: leave lock_dynamodb_table= out, and the table's own arbiter is taken."
            )
            raise
        error.add_note("For to_deltalake: give lock_dynamodb_table=.")
        table = sw.open(path, **reach)
        if "safewrite.arbiter" not in table.properties:  # guarded by a lock table, and which one is unknown
            raise
    return table


def _options(given: object) -> dict[str, str] | None:
    """Deltalake's keys; refuse what would change how objects are stored and is not sent."""
    options = arguments.mapping("s3_additional_kwargs", given)
    for key, value in list(options.items()):
        if str(key).upper() in _ENCRYPTION:
            continue
        plain = str(key).lower().replace("_", "").removeprefix("aws")
        if plain == "serversideencryption" and value == "AES256":
            del options[key]  # what S3 does by itself
        elif plain in _NOT_SENT:
            raise sw.InvalidInputError(
                f"s3_additional_kwargs= has {key}={value!r}, which safewrite's requests do not send. Nothing was written. "
                "Make it the bucket's default (encryption, storage class, owner), and leave it out; a key of KMS is given as deltalake "
                "spells it: AWS_SERVER_SIDE_ENCRYPTION='aws:kms', AWS_SSE_KMS_KEY_ID."
            )
        elif not re.fullmatch("[a-z0-9_]+|[A-Z0-9_]+", str(key)):
            raise sw.InvalidInputError(
                f"s3_additional_kwargs= has {key!r}, which is an argument of boto3's requests and not a key of deltalake (AWS_REGION, "
                "aws_endpoint_url ...): it would have no effect. Nothing was written. Leave it out."
            )
    return options or None
