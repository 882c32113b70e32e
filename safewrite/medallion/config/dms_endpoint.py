"""Reads the settings of a DMS endpoint for S3: where its files are, and what stands in them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, ConfigDict
from pydantic.alias_generators import to_pascal

from safewrite.errors import InvalidInputError
from safewrite.intake.conversion import Converted
from safewrite.intake.settings import Strict, Text


def _flag(given: Any) -> Any:
    """DMS takes true, false, y and n, as values or as texts."""
    said = {
        "true": True,
        "y": True,
        "yes": True,
        "1": True,
        "false": False,
        "n": False,
        "no": False,
        "0": False,
    }
    return said.get(given.strip().lower(), given) if isinstance(given, str) else given


def _number(given: Any) -> Any:
    return int(given) if isinstance(given, str) and given.strip().isdigit() else given


def _lower(given: Any) -> Any:
    return given.strip().lower().replace("_", "-") if isinstance(given, str) else given


def _letters(given: Any) -> Any:
    r"""DMS takes ``\n`` and ``\x1e`` as they are spelled in a console."""
    if not isinstance(given, str):
        return given
    named = {"n": "\n", "r": "\r", "t": "\t", "\\": "\\", "0": "\0"}

    def letter(found: re.Match[str]) -> str:
        code = found[1]
        return named.get(code) or chr(int(code[1:], 16))

    return re.sub(r"\\([nrt\\0]|x[0-9A-Fa-f]{2}|u[0-9A-Fa-f]{4})", letter, given)


Flag = Annotated[bool | None, BeforeValidator(_flag)]
Number = Annotated[int | None, BeforeValidator(_number)]
Letters = Annotated[str | None, BeforeValidator(_letters)]


class S3Settings(Strict):
    """The S3Settings of ``aws dms describe-endpoints``; a field that DMS does not have is refused."""

    model_config = ConfigDict(alias_generator=to_pascal)

    bucket_name: Text
    bucket_folder: str | None = None
    data_format: Annotated[Literal["csv", "parquet"], BeforeValidator(_lower)] = "csv"
    compression_type: Annotated[str | None, BeforeValidator(_lower)] = None
    add_column_name: Flag = None
    include_op_for_full_load: Flag = None
    timestamp_column_name: str | None = None
    cdc_inserts_only: Flag = None
    cdc_inserts_and_updates: Flag = None
    csv_delimiter: Letters = None
    csv_row_delimiter: Letters = None
    csv_null_value: str | None = None
    csv_no_sup_value: str | None = None
    use_csv_no_sup_value: Flag = None
    rfc4180: Flag = None
    preserve_transactions: Flag = None
    cdc_path: str | None = None
    date_partition_enabled: Flag = None
    date_partition_sequence: str | None = None
    date_partition_delimiter: str | None = None
    date_partition_timezone: str | None = None
    parquet_timestamp_in_millisecond: Flag = None
    add_trailing_padding_character: Flag = None
    use_task_start_time_for_full_load_timestamp: Flag = None
    # What follows changes nothing that we read.
    service_access_role_arn: str | None = None
    external_table_definition: str | None = None
    encryption_mode: str | None = None
    server_side_encryption_kms_key_id: str | None = None
    encoding_type: str | None = None
    dict_page_size_limit: Number = None
    row_group_length: Number = None
    data_page_size: Number = None
    parquet_version: str | None = None
    enable_statistics: Flag = None
    canned_acl_for_objects: str | None = None
    cdc_max_batch_interval: Number = None
    cdc_min_file_size: Number = None
    ignore_header_rows: Number = None
    max_file_size: Number = None
    expected_bucket_owner: str | None = None
    glue_catalog_generation: Flag = None


def object_in(given: Mapping[str, Any], name: str) -> dict[str, Any]:
    """An object within another one; empty where there is none.

    Raises:
        InvalidInputError: it is a list, a number or a text.
    """
    found = given.get(name)
    if found is not None and not isinstance(found, Mapping):
        raise InvalidInputError(
            f"{name} is not a JSON object. Nothing was written. Give what the AWS CLI says."
        )
    return dict(found or {})


def settings_of(endpoint: Mapping[str, Any]) -> dict[str, Any]:
    """The S3Settings of an endpoint, with what stands in its extra connection attributes alone."""
    known = {name.lower(): name for name in (to_pascal(one) for one in S3Settings.model_fields)}
    found = object_in(endpoint, "S3Settings")
    for part in str(endpoint.get("ExtraConnectionAttributes") or "").split(";"):
        name, equals, value = part.partition("=")
        if equals and (name := known.get(name.strip().lower(), name.strip())) not in found:
            found[name] = value
    return found


def of_endpoint(made: Converted, given: S3Settings) -> dict[str, Any]:
    """``files`` of all tables; ``raw`` goes into the configuration.  Tells what each setting becomes, and which ones lose."""
    _raw(made, given)
    files: dict[str, Any] = {"kind": given.data_format}
    made.say("DataFormat", f"files.kind: {given.data_format}")
    if given.include_op_for_full_load:
        files["op_in_full_load"] = True
        made.say("IncludeOpForFullLoad", "files.op_in_full_load: true")
    if given.timestamp_column_name:
        files["timestamp"] = given.timestamp_column_name
        made.say("TimestampColumnName", f"files.timestamp: {given.timestamp_column_name}")
    if given.cdc_inserts_only or given.cdc_inserts_and_updates:
        name = "CdcInsertsOnly" if given.cdc_inserts_only else "CdcInsertsAndUpdates"
        files["changes"] = "inserts" if given.cdc_inserts_only else "inserts_and_updates"
        made.say(name, f"files.changes: {files['changes']}", "rows that the source deletes stay in silver")
    if given.data_format == "csv":
        _csv(made, given, files)
    made.warnings += _losses(given)
    return files


def _raw(made: Converted, given: S3Settings) -> None:
    folder = (given.bucket_folder or "").strip("/")
    raw: dict[str, Any] = {"location": f"s3://{given.bucket_name}{f'/{folder}' if folder else ''}"}
    made.say("BucketName, BucketFolder", f"raw.location: {raw['location']}")
    if given.preserve_transactions:
        mixed = (given.cdc_path or "").strip("/").removeprefix(f"{folder}/" if folder else "")
        raw |= {
            "layout": "mixed",
            "mixed_folder": mixed,
            "table_column": "_table",
            "schema_column": "_schema",
        }
        made.say(
            "PreserveTransactions, CdcPath",
            f"raw.layout: mixed, raw.mixed_folder: {mixed}",
            "each change file has records of all tables, which name table and schema",
        )
    elif given.date_partition_enabled:
        made.say(
            "DatePartitionEnabled", "nothing", "folders of dates are read; files are ordered by their names"
        )
    made.config["raw"] = raw


def _csv(made: Converted, given: S3Settings, files: dict[str, Any]) -> None:
    files["header"] = bool(given.add_column_name)
    made.say("AddColumnName", f"files.header: {str(files['header']).lower()}")
    is_rfc4180 = given.rfc4180 is not False
    files["rfc4180"] = is_rfc4180
    made.say("Rfc4180", f"files.rfc4180: {str(is_rfc4180).lower()}")
    for name, field, value, default in (
        ("CsvDelimiter", "delimiter", given.csv_delimiter, ","),
        ("CsvRowDelimiter", "row_delimiter", given.csv_row_delimiter, "\n"),
    ):
        if value not in (None, "", default):
            files[field] = value
            made.say(name, f"files.{field}: {value!r}")
    if given.csv_null_value is not None and given.csv_null_value != "NULL":
        files["null_value"] = "" if given.csv_null_value in ("''", '""') else given.csv_null_value
        made.say("CsvNullValue", f"files.null_value: {files['null_value']!r}")
    if given.use_csv_no_sup_value and given.csv_no_sup_value:
        files["no_sup_value"] = given.csv_no_sup_value
        made.say(
            "UseCsvNoSupValue, CsvNoSupValue",
            f"files.no_sup_value: {given.csv_no_sup_value!r}",
            "such a value stays as it is in silver",
        )


def _losses(given: S3Settings) -> Iterator[str]:
    """What the endpoint leaves out of its files, and the setting that would bring it."""
    is_csv = given.data_format == "csv"
    if is_csv and not given.add_column_name:
        yield (
            "AddColumnName is not true: files do not name their columns, so a column that the source adds, drops or moves shifts values in "
            "silence where types agree. Set AddColumnName=true."
        )
    if not given.timestamp_column_name:
        yield (
            "TimestampColumnName is not set: files do not say when a change was committed, _commit_time of bronze is NULL, and silver can "
            "have no commit time. Set it."
        )
    if given.cdc_inserts_only or given.cdc_inserts_and_updates:
        what = "updates and deletes" if given.cdc_inserts_only else "deletes"
        yield f"{'CdcInsertsOnly' if given.cdc_inserts_only else 'CdcInsertsAndUpdates'} is true: files lack the {what} of the source, and silver differs from it."
    if is_csv and not (given.use_csv_no_sup_value and given.csv_no_sup_value):
        yield (
            "UseCsvNoSupValue and CsvNoSupValue are not set: where the source's log has changed columns and keys alone, the other columns of an "
            "update come as NULL, and silver takes that. Set both, or let the source log whole rows (Oracle: supplemental logging of all columns; "
            "PostgreSQL: REPLICA IDENTITY FULL)."
        )
    if not is_csv:
        yield (
            "DataFormat is parquet, which has no CsvNoSupValue: where the source's log has changed columns and keys alone, the other columns of "
            "an update come as NULL, and silver takes that. Let the source log whole rows (Oracle: supplemental logging of all columns; PostgreSQL: "
            "REPLICA IDENTITY FULL)."
        )
    if given.date_partition_timezone and given.date_partition_timezone.upper() not in (
        "UTC",
        "ETC/UTC",
        "GMT",
    ):
        yield (
            f"DatePartitionTimezone is {given.date_partition_timezone}: names of change files are local times, which come twice when clocks go back. "
            "Take it out, or let a rule add the column AR_H_CHANGE_SEQ, which orders changes."
        )
    if given.parquet_timestamp_in_millisecond and not is_csv:
        yield "ParquetTimestampInMillisecond is true: times lose their microseconds. Take it out."
    if given.add_trailing_padding_character:
        yield "AddTrailingPaddingCharacter is true: texts come with blanks that the source does not have. Take it out."
