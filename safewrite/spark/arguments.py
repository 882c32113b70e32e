"""Checks what users give for a Spark session's settings, before Java sees it."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from safewrite.errors import InvalidInputError
from safewrite.text.rendering import shown
from safewrite.text.strings import is_text

_ARBITERS = (None, "dynamodb", "object-store")


def check_arbiter(lock_table: object, arbiter: object) -> None:
    """Refuse what is neither lock table nor arbiter, or both at once.

    Raises:
        InvalidInputError: names the argument.
    """
    if lock_table is not None and not (is_text(lock_table) and lock_table.strip()):
        raise _wrong("lock_table", "the name of a DynamoDB table", lock_table)
    if not any(arbiter is one or arbiter == one for one in _ARBITERS):
        raise _wrong("arbiter", "'dynamodb' or 'object-store', or is left out", arbiter)
    if lock_table is not None and arbiter == "object-store":
        raise InvalidInputError(
            "arbiter='object-store' uses no lock table, but lock_table= was given. Nothing was written. "
            "Choose one: a table must have one arbiter."
        )


def check_catalogs(given: object) -> None:
    """Refuse what are no Iceberg catalogs by name, each with its properties.

    Raises:
        InvalidInputError: names the catalog.
    """
    example = (
        "catalogs by name with their properties, such as {'prod': {'type': 'rest', 'uri': 'https://...'}}"
    )
    if given is not None and not isinstance(given, Mapping):
        raise _wrong("iceberg", example, given)
    for name, properties in (given or {}).items():
        if not is_text(name) or not name.isidentifier():
            raise _wrong("iceberg", f"{example}; a name is of letters, digits and _", name)
        if not _texts(properties):
            raise _wrong(
                f"iceberg={{{name!r}: ...}}", "a mapping of texts, the catalog's properties", properties
            )


def check_own(given: object) -> None:
    """Refuse what are no settings of Spark.

    Raises:
        InvalidInputError: they are no texts by name.
    """
    if given is not None and not _texts(given):
        raise _wrong("own", "Spark's settings as texts, such as {'spark.jars': 'udfs.jar'}", given)


def check_jars(given: object) -> None:
    """Refuse what is neither a folder nor a list of jars that are there.

    Raises:
        InvalidInputError: names what is wrong.
    """
    example = "a folder with the pinned jars, or a list of jars"
    if given is None or isinstance(given, str | os.PathLike):
        if isinstance(given, str) and "," in given and not os.path.isdir(given):  # noqa: PTH112 - a text so far
            raise _wrong("jars", f"{example}, and no list with commas: pass jars=[...]", given)
        return
    if not isinstance(given, Sequence) or isinstance(given, bytes):
        raise _wrong("jars", example, given)
    for one in given:
        if not isinstance(one, str | os.PathLike):
            raise _wrong("jars", example, one)


def _texts(given: object) -> bool:
    return isinstance(given, Mapping) and all(is_text(one) for pair in given.items() for one in pair)


def _wrong(name: str, takes: str, given: object) -> InvalidInputError:
    return InvalidInputError(f"{name}= takes {takes}, not {shown(given)}. Nothing was written.")
