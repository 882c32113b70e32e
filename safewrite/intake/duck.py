"""Makes the DuckDB that judges rows: it reaches no file and no network, has a limit of memory, and no rule changes either."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib import metadata
from typing import Any

from safewrite.errors import MissingExtraError

MEMORY_MAX = "50%"
"""Of the memory that DuckDB sees, which is that of a container where one is set."""


_KEPT_MAX = 4
_kept: dict[int, list[Any]] = {}
"""Connections that wait for the next use, by process: a fork has none of its parent's."""


@contextmanager
def closed_duckdb(what: str, extra: str = "medallion", left: str = "silver") -> Iterator[Any]:
    """A connection in memory.  ``what`` begins the sentence that says what DuckDB is needed for, and ``left`` ends it.

    Raises:
        MissingExtraError: it is not installed.
    """
    with _opened(what, extra, left) as connection:
        yield connection


@contextmanager
def kept_duckdb(what: str, extra: str, left: str, *, name: str) -> Iterator[Any]:
    """The same, of those that a use before has left: opening one costs more than most uses.

    Args:
        name: the only rows that the use registers, which go with its end.

    Raises:
        MissingExtraError: as :func:`closed_duckdb`.
    """
    kept = _kept.setdefault(os.getpid(), [])
    connection = kept.pop() if kept else _opened(what, extra, left)
    try:
        yield connection
        connection.unregister(name)
    except BaseException:
        connection.close()
        raise
    if len(kept) < _KEPT_MAX:
        kept.append(connection)
    else:
        connection.close()


def _opened(what: str, extra: str, left: str) -> Any:
    try:
        import duckdb
    except ModuleNotFoundError as error:
        raise MissingExtraError(
            f"{what} with DuckDB: {MissingExtraError.command(extra)}. Nothing was written to {left}."
        ) from error
    settings: dict[str, str | bool | int | float | list[str]] = {
        "threads": 1,
        "memory_limit": MEMORY_MAX,
        "temp_directory": "",
    }  # nothing of the rows goes to the disk
    connection = duckdb.connect(":memory:", config=settings)
    connection.execute("SET TimeZone = 'UTC'")  # else a time without a zone is the machine's own
    connection.execute("SET enable_external_access = false")
    connection.execute("SET lock_configuration = true")  # last: nothing is set after it
    return connection


@cache
def duckdb_version() -> str | None:
    """The version of DuckDB; None where it is not installed."""
    try:
        return metadata.version("duckdb")
    except metadata.PackageNotFoundError:
        return None
