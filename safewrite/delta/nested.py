"""Looks where a new table is to be: a table within another one's folder is a slip, and loses its files to that one's clean-up."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from safewrite.arguments.options import Address
from safewrite.delta.connect import Connection
from safewrite.delta.log.actions import LOG
from safewrite.errors import InvalidInputError
from safewrite.protocol.effects import Ok
from safewrite.stores.s3 import S3Objects

ABOVE_MAX = 8
"""So many folders above a new table are looked at, the nearest first."""


def refuse_within(connection: Connection) -> None:
    """Refuse to make a table where an empty name led to: at the root of a bucket, or within another table.

    A store that does not let this caller list folders above the table is asked no further.

    Raises:
        InvalidInputError: it says which table is there.
    """
    address = connection.address
    if address.is_s3 and not address.prefix:
        raise InvalidInputError(
            f"{address.uri} is the whole bucket, and a table there owns each object in it: a clean-up of the table would take them. "
            "Nothing was written. If a name was left empty, give it; else give the table a prefix, such as "
            f"{address.uri}/lake/orders."
        )
    found = next(above(address, connection.world.objects), None)
    if found is not None:
        raise InvalidInputError(
            f"{address.uri} is within another Delta table, {found}: a full VACUUM there would take the files of this one, and its doctor "
            "would call them failed writes. Nothing was written. Give the new table a place of its own, next to that table."
        )


def above(address: Address, objects: object) -> Iterator[str]:
    """The Delta tables in whose folders a place is; a store that lists no folder there shows none."""
    path = PurePosixPath(address.prefix if address.is_s3 else address.uri)
    for folder in list(path.parents)[:ABOVE_MAX]:
        if isinstance(objects, S3Objects):
            answer = S3Objects(objects.client, address.bucket, str(folder).removeprefix(".")).list(LOG, "", 1)
            if isinstance(answer, Ok) and answer.value:
                yield f"s3://{address.bucket}/{folder}".removesuffix("/.")
        elif (Path(folder) / LOG).is_dir():
            yield str(folder)
