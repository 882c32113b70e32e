"""Settings of a table: where it is, who arbitrates, how patient a write is; unsafe ones are refused."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from safewrite.errors import InvalidInputError, UnsafeConfigError

ArbiterName = Literal["dynamodb", "object-store", "local"]

DEFAULT_LOCK_TABLE = "delta_log"
"""The name that Delta's ``S3DynamoDBLogStore`` uses unless told otherwise."""

_UNSAFE = {
    "AWS_S3_ALLOW_UNSAFE_RENAME": "renames of commit files are not exclusive: writers overwrite each other",
    "S3_ALLOW_UNSAFE_RENAME": "renames of commit files are not exclusive: writers overwrite each other",
    "ALLOW_UNSAFE_RENAME": "renames of commit files are not exclusive: writers overwrite each other",
    "MOUNT_ALLOW_UNSAFE_RENAME": "renames of commit files are not exclusive: writers overwrite each other",
}
_CONDITIONAL_PUT = frozenset({"AWS_CONDITIONAL_PUT", "CONDITIONAL_PUT"})
_SINGLE_DRIVER = frozenset({"SPARK.DELTA.LOGSTORE.S3.IMPL", "SPARK.DELTA.LOGSTORE.S3A.IMPL"})


def refuse_unsafe(
    storage_options: Mapping[str, str] | None, environment: Mapping[str, str] | None = None
) -> None:
    """Refuse settings that allow silent loss, in options and in the environment (A1).

    Raises:
        UnsafeConfigError: names the setting, where it stands, and what it does.
    """
    places = (("storage_options", storage_options or {}), ("the environment", environment or os.environ))
    for where, settings in places:
        for name, value in settings.items():
            upper, text = name.upper(), str(value).strip().lower()
            if upper in _UNSAFE and text not in ("", "0", "false", "no", "off"):
                raise _refusal(name, value, where, _UNSAFE[upper])
            if upper in _CONDITIONAL_PUT and text in ("disabled", "none", "off"):
                raise _refusal(
                    name, value, where, "without conditional creates two writers can own one version"
                )
            if upper in _SINGLE_DRIVER and "singledriver" in text:
                raise _refusal(name, value, where, "it excludes writers of one Spark driver only")


def _refusal(name: str, value: str, where: str, why: str) -> UnsafeConfigError:
    return UnsafeConfigError(
        f"Refused: {name}={value} in {where}: {why}. Nothing was written. Remove the setting; safewrite "
        "never needs it."
    )


@dataclass(frozen=True, slots=True)
class Address:
    """Where a table is: ``s3://bucket/prefix`` or a local folder."""

    uri: str
    bucket: str = ""
    prefix: str = ""

    @property
    def is_s3(self) -> bool:
        return bool(self.bucket)


def parse_address(uri: object) -> Address:
    """Understand a table's address; spellings of one table become one (A15).

    Raises:
        InvalidInputError: not a path or an ``s3://`` address.
    """
    text = os.fspath(uri) if isinstance(uri, os.PathLike) else uri
    if not isinstance(text, str) or not text.strip():
        raise InvalidInputError(
            f"A table's address is a path or an s3:// address, not {uri!r:.80}. Nothing was written."
        )
    scheme, separator, rest = text.strip().partition("://")
    if not separator:
        return Address(uri=str(os.path.abspath(text)))  # noqa: PTH100 - keeps symbolic links as given
    if scheme == "file":
        return Address(uri=os.path.abspath("/" + rest.lstrip("/")))  # noqa: PTH100
    if scheme not in ("s3", "s3a", "s3n"):
        raise InvalidInputError(
            f"Addresses of scheme {scheme!r} are not known: {text!r}. Nothing was written. "
            "Use s3://bucket/path or a local path."
        )
    bucket, *parts = [part for part in rest.split("/") if part]
    if any(part in (".", "..") for part in parts):
        raise InvalidInputError(f"'.' and '..' in {text!r} name other tables in S3. Nothing was written.")
    prefix = "/".join(parts)
    return Address(uri=f"s3://{bucket}/{prefix}".rstrip("/"), bucket=bucket, prefix=prefix)
