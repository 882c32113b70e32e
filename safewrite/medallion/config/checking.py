"""Finds what would make every run of a configuration fail, without a request to a store or a catalog."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Iterator
from pathlib import Path

from safewrite.intake.settings import refused
from safewrite.medallion.config.job import MORE, Config

_LOCAL = ("/", "./", "../", "~")


def check_config(config: Config) -> None:
    """Refuse a configuration with which no table can be run.

    Raises:
        InvalidInputError: every field that is wrong is named.
    """
    if faults := [*_addresses(config), *_raw(config), *_libraries(config)]:
        raise refused(faults, MORE)


def _addresses(config: Config) -> Iterator[str]:
    named = [("quarantine", config.quarantine_format, config.quarantine)]
    for name, table in config.tables.items():
        named += [
            (f"tables.{name}.{layer}", table.format, getattr(table, layer)) for layer in ("bronze", "silver")
        ]
    for field, table_format, address in named:
        if re.search(r"[{}]", address):
            yield f"{field}: {address} has a brace; only {{schema}} and {{table}} of bronze and silver are replaced"
        elif table_format == "iceberg":
            if not re.fullmatch(r"[^./\\:]+(\.[^./\\:]+)+", address):
                yield f"{field}: {address} does not name an Iceberg table; write namespace.table"
        elif "://" in address:
            scheme = address.partition("://")[0]
            if scheme not in ("s3", "s3a", "s3n", "file"):
                yield f"{field}: addresses of scheme {scheme!r} are not known; use s3://bucket/path or a folder"
        elif not address.startswith(_LOCAL) and not Path(address).exists():
            yield f"{field}: {address} could be a folder or a slip; write ./{address}, or s3://{address} for a table on S3"


def _raw(config: Config) -> Iterator[str]:
    address = config.raw.location
    if config.landed and "://" not in address and not Path(address).is_dir():
        yield f"raw.location: no folder {address} here"


def _libraries(config: Config) -> Iterator[str]:
    formats = {config.quarantine_format, *(table.format for table in config.tables.values())}
    needed = {"delta": "deltalake", "iceberg": "pyiceberg"}
    rules = [table.quality for table in config.tables.values()]
    has_sql = any(rule.conditions or rule.result.conditions or rule.result.queries for rule in rules)
    libraries = [needed[one] for one in sorted(formats)]
    if has_sql or len(config.landed) < len(config.tables):
        libraries.append("duckdb")
    for library in libraries:
        if importlib.util.find_spec(library) is None:
            yield f"{library} is not installed, which this configuration needs: pip install {library}"
