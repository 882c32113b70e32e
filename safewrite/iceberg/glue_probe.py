"""Asks a stand-in for AWS Glue whether it compares a table's version before it sets another; AWS's own is known to."""

from __future__ import annotations

import logging
import uuid
from functools import cache
from typing import Any
from urllib.parse import urlsplit

log = logging.getLogger("safewrite")

_DELETES_MAX = 3
_DENIED = ("AccessDenied", "AccessDeniedException")
_ABSENT = "EntityNotFoundException"


def compares(glue: Any, database: str, table: str) -> bool:
    """Whether an update with an outdated version id is refused; True for AWS itself, which is not asked.

    It is tried on a scratch table, which is only made where it can be deleted.  Where that is not permitted it is tried
    on the table itself, with the content that it has: a catalog that compares changes nothing, and another one is refused.
    """
    if is_of_aws(str(glue.meta.endpoint_url)):
        return True
    name = f"safewrite_probe_{uuid.uuid4().hex}"
    if _may_delete(glue, database, name):
        scratch: dict[str, Any] = {"Name": name, "Parameters": {"state": "0"}}
        try:
            if _makes(glue, database, scratch):
                found = glue.get_table(DatabaseName=database, Name=name)["Table"]["VersionId"]
                glue.update_table(DatabaseName=database, TableInput=scratch, VersionId=found)
                return _refuses(glue, database, scratch, found)
        finally:
            _delete(glue, database, name)
    return _refuses_itself(glue, database, table)


@cache
def _suffixes() -> tuple[str, ...]:
    """How names of AWS's endpoints end, of every partition, as botocore has them."""
    from botocore.loaders import Loader

    found = {"amazonaws.com"}
    for partition in Loader().load_data("partitions")["partitions"]:
        found |= {partition["outputs"][one] for one in ("dnsSuffix", "dualStackDnsSuffix")}
    return tuple(f".{one}" for one in found if one)


def is_of_aws(endpoint_url: str) -> bool:
    """Whether an address is one of AWS: of any partition, dual-stack or a VPC's endpoint, with a port or without."""
    return (urlsplit(endpoint_url).hostname or "").endswith(_suffixes())


def _code(error: Exception) -> str:
    return str((getattr(error, "response", None) or {}).get("Error", {}).get("Code", ""))


def _may_delete(glue: Any, database: str, name: str) -> bool:
    """Whether a table may be deleted, asked by one that is not there."""
    from botocore.exceptions import ClientError

    try:
        glue.delete_table(DatabaseName=database, Name=name)
    except ClientError as error:
        if _code(error) in _DENIED:
            return False
        if _code(error) != _ABSENT:
            raise
    return True


def _makes(glue: Any, database: str, scratch: dict[str, Any]) -> bool:
    from botocore.exceptions import ClientError

    try:
        glue.create_table(DatabaseName=database, TableInput=scratch)
    except ClientError as error:
        if _code(error) in _DENIED:
            return False
        raise
    return True


def _delete(glue: Any, database: str, name: str) -> None:
    """Delete the scratch table; one that stays is named, for nobody else knows what it is."""
    last: Exception | None = None
    for _ in range(_DELETES_MAX):
        try:
            glue.delete_table(DatabaseName=database, Name=name)
        except Exception as error:  # noqa: BLE001 - it is told below
            if _code(error) == _ABSENT:
                return
            last = error
        else:
            return
    log.warning(
        "The scratch table %s.%s of the probe could not be deleted (%s): delete it.", database, name, last
    )


def _refuses_itself(glue: Any, database: str, table: str) -> bool:
    found = glue.get_table(DatabaseName=database, Name=table)["Table"]
    known = glue.meta.service_model.shape_for("TableInput").members
    same = {name: value for name, value in found.items() if name in known and value not in ("", None)}
    other = str(int(found["VersionId"]) + 1_000_000) if str(found.get("VersionId")).isdecimal() else "never"
    return _refuses(glue, database, same, other)


def _refuses(glue: Any, database: str, table: dict[str, Any], outdated: str) -> bool:
    from botocore.exceptions import ClientError

    try:
        glue.update_table(DatabaseName=database, TableInput=table, VersionId=outdated)
    except ClientError as error:
        if _code(error) != "ConcurrentModificationException":
            raise
        return True
    return False
