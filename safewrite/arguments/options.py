"""Checks the settings of a table (where it is, who arbitrates, how patient a write is); refuses unsafe ones."""

from __future__ import annotations

import math
import operator
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias
from urllib.parse import unquote

from safewrite.arguments.reading import reading
from safewrite.errors import InvalidInputError, UnsafeConfigError
from safewrite.protocol import keys
from safewrite.protocol.ask import Limits
from safewrite.protocol.keys import Identity
from safewrite.text.masking import note
from safewrite.text.rendering import kind, shown
from safewrite.text.strings import is_storable, is_text, plain

ArbiterName = Literal["dynamodb", "object-store", "local"]

DEFAULT_LOCK_TABLE = "delta_log"
"""The name that Delta's ``S3DynamoDBLogStore`` uses by default."""
TEXT_MAX = 1024
"""No key of S3 is longer, and no name of a table."""

_RENAMES = "AWS_S3_ALLOW_UNSAFE_RENAME S3_ALLOW_UNSAFE_RENAME ALLOW_UNSAFE_RENAME MOUNT_ALLOW_UNSAFE_RENAME"
_UNSAFE = dict.fromkeys(
    _RENAMES.split(), "renames of commit files are not exclusive: writers overwrite each other"
)
_CONDITIONAL_PUT = frozenset({"AWS_CONDITIONAL_PUT", "CONDITIONAL_PUT"})
_SINGLE_DRIVER = frozenset({"SPARK.DELTA.LOGSTORE.S3.IMPL", "SPARK.DELTA.LOGSTORE.S3A.IMPL"})


class Generated(Enum):
    """How a write is named whose caller gave no name."""

    GENERATED = "generated"

    def __repr__(self) -> str:
        return "GENERATED"


GENERATED: Final = Generated.GENERATED
Key: TypeAlias = str | Generated | None
Txn: TypeAlias = tuple[str, int] | Generated | None


@reading("key= or txn=")
def identity(key: Key, txn: Txn) -> Identity:
    """How the caller names a write: by a key, by a stream's batch, or not at all.

    None is an invalid name, not the same as none given: an event whose id is missing must not be written twice.

    Raises:
        InvalidInputError: both were given, or None, or one that cannot be used.
    """
    given_key, given_txn = (one is not None and one is not GENERATED for one in (key, txn))
    if given_key and given_txn:
        raise InvalidInputError("Give key= or txn=, not both: each names the write. Nothing was written.")
    if given_key:
        return Identity(key=plain(keys.check(key)))
    if given_txn:
        app_id, version = keys.check_txn(txn)
        return Identity(txn=(plain(app_id), version))
    if key is None or txn is None:
        raise InvalidInputError(
            f"{'key' if key is None else 'txn'}=None names no write: if the event's id is missing, a second delivery "
            "would write its rows again. Nothing was written. Give the id; or leave key= and txn= out, if a second "
            "call is to be a second write."
        )
    return Identity()


@reading("key=")
def known_key(key: object) -> str:
    """The name of a write to look up.

    Raises:
        InvalidInputError: it can name none.
    """
    return plain(keys.check(key))


# --- limits -----------------------------------------------------------------------------------------
def limits(*, attempts_max: Any, timeout_s: Any, lease_s: Any) -> Limits:
    """The limits of a write, checked before anything is done with them.

    Raises:
        InvalidInputError: one is no positive number.
    """
    return Limits(
        attempts=whole("attempts_max", attempts_max),
        timeout_s=_seconds("timeout_s", timeout_s),
        lease_s=_seconds("lease_s", lease_s),
    )


def whole(name: str, value: Any) -> int:
    """A whole number from 1; raises InvalidInputError for anything else."""
    try:
        number = int(operator.index(value))
    except Exception:  # noqa: BLE001 - what the object raises: it is no number, in any case
        number = 0
    if not 1 <= number < 2**63 or isinstance(value, bool):
        raise InvalidInputError(
            f"{name}= is a whole number from 1 to 2^63 - 1, not {shown(value)}. Nothing was written."
        )
    return number


def patience(timeout_s: Any) -> float | None:
    """The limit of one call, or None for the table's.

    Raises:
        InvalidInputError: it is no positive number.
    """
    return seconds("timeout_s", timeout_s)


def seconds(name: str, value: Any) -> float | None:
    """A limit of seconds, or None for none.  Raises as :func:`patience`."""
    return None if value is None else _seconds(name, value)


def _seconds(name: str, value: Any) -> float:
    good = hasattr(value, "__float__") and not isinstance(value, bool | str | bytes)
    try:
        number = float(value) if good else 0.0
    except Exception:  # noqa: BLE001 - as above; a whole number can be beyond every float
        number = 0.0
    if not number > 0 or math.isnan(number):
        raise InvalidInputError(
            f"{name}= is a number of seconds above 0, not {shown(value)}. Nothing was written."
        )
    return number


def flag(name: str, value: Any) -> bool:
    """True or False; raises InvalidInputError for anything else: a text like "no" would count as true."""
    if not isinstance(value, bool):
        raise InvalidInputError(f"{name}= is True or False, not {shown(value)}. Nothing was written.")
    return value


def text(name: str, value: Any) -> str | None:
    """A text that says something, or None; raises InvalidInputError for anything else."""
    if value is None:
        return None
    found = plain(value) if is_text(value) else ""
    if not found.strip() or not is_storable(found) or len(found) > TEXT_MAX:
        raise InvalidInputError(
            f"{name}= is a non-empty text of at most {TEXT_MAX} letters, not {shown(value)}. Nothing was written."
        )
    return found


def session(value: Any) -> Any:
    """A boto3 session or None; raises InvalidInputError for anything else."""
    if value is not None and not callable(getattr(value, "client", None)):
        raise InvalidInputError(
            f"boto3_session= is a boto3.Session, not {shown(value)}. Nothing was written. Settings go into "
            "storage_options=."
        )
    return value


def texts(name: str, value: Any) -> tuple[str, ...]:
    """A list of texts; raises InvalidInputError for anything else, also for a single text."""
    good = isinstance(value, Sequence | set | frozenset) and not isinstance(value, str | bytes)
    if not good or not all(isinstance(one, str) for one in value):
        raise InvalidInputError(
            f"{name}= is a list of texts, not {shown(value)}. Nothing was written. Write {name}=['day']."
        )
    return tuple(value)


def settings(name: str, value: Any) -> dict[str, str] | None:
    """A mapping of texts to plain values, as texts; None stays None.

    Raises:
        InvalidInputError: it is something else, or has values that are no text, number or flag.
    """
    if value is None:
        return None
    if not isinstance(value, Mapping):
        # The value itself may be a secret, as JSON text or in any other form.
        raise InvalidInputError(
            f"{name}= is a dict of texts, not of type {kind(value)}. Nothing was written."
        )
    note(value)
    for key, one in value.items():
        if not isinstance(key, str) or not isinstance(one, str | int | float | Path):
            raise InvalidInputError(
                f"{name}= has {shown(key)} of type {kind(one)}; names are texts, and values texts, numbers or flags. Nothing was "
                "written. Keys are deltalake's, such as AWS_ENDPOINT_URL and AWS_REGION."
                if name == "storage_options"
                else f"{name}= has {shown(key)} of type {kind(one)}; names are texts, and values texts, numbers or flags. "
                "Nothing was written."
            )
    found = {plain(key): _setting(one) for key, one in value.items()}
    for key, one in found.items():
        if not is_storable(key) or not is_storable(one):
            raise InvalidInputError(
                f"{name}= has {shown(key)} with a character (NUL, or half of a pair) with which other "
                "engines could not read it. Nothing was written. Leave it out."
            )
    return found


def _setting(value: str | float | Path) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return plain(value) if is_text(value) else str(value)


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


_SCHEME_LIKE = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,254}")
_CONTROL = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]")
_LAMBDA = "AWS_LAMBDA_FUNCTION_NAME"
_KEPT_IN_LAMBDA = "/mnt/"
"""The folder of file systems that outlive a function's sandbox."""


@reading("The table's address")
def parse_address(uri: object) -> Address:
    """Parse a table's address; spellings of one table become one (A15).

    A text that could be a slip (``s3:/bucket``, ``bucket/path`` without its scheme) is no local path: rows would go
    to a disk where nobody looks for them.

    Raises:
        InvalidInputError: not a path or an ``s3://`` address; or one where other engines look elsewhere.
        UnsafeConfigError: a local path in a Lambda function.
    """
    if isinstance(uri, os.PathLike):
        return _local_address(os.fspath(uri), as_path=True)
    if not isinstance(uri, str) or not uri.strip():
        raise InvalidInputError(
            f"A table's address is a path or an s3:// address, not {shown(uri)}. Nothing was written."
        )
    text = uri.strip()
    scheme, separator, rest = text.partition("://")
    if not separator:
        return _local_address(text if _SCHEME_LIKE.match(text) else uri, as_path=False)
    if scheme == "file":
        return _file_address(text, rest)
    if scheme not in ("s3", "s3a", "s3n"):
        raise InvalidInputError(
            f"Addresses of scheme {scheme!r} are not known: {text!r}. Nothing was written. "
            "Use s3://bucket/path or a local path."
        )
    return _s3_address(text, rest)


def _s3_address(text: str, rest: str) -> Address:
    bucket, *parts = [part for part in rest.split("/") if part] or [""]
    if not _BUCKET.fullmatch(bucket):
        why = (
            "a variable that was not replaced?"
            if "$" in bucket or "{" in bucket
            else "letters, digits, '.', '_', '-'"
        )
        raise InvalidInputError(
            f"{text!r} names no bucket ({bucket!r}: {why}). Nothing was written. Use s3://bucket/path; an access point "
            "goes by its alias."
        )
    if any(part in (".", "..") for part in parts):
        raise InvalidInputError(f"'.' and '..' in {text!r} name other tables in S3. Nothing was written.")
    prefix = "/".join(parts)
    _refuse_variable(text)
    _refuse_log_folder(prefix)
    if any(letter in prefix for letter in "%?#\\") or _CONTROL.search(prefix):
        raise InvalidInputError(
            f"{text!r} has a character ('%', '?', '#', '\\' or a control character) that other engines read as part of "
            "a URL: they would look for the table elsewhere. Nothing was written. Give the table another path."
        )
    return Address(uri=f"s3://{bucket}/{prefix}".rstrip("/"), bucket=bucket, prefix=prefix)


def _file_address(text: str, rest: str) -> Address:
    host, slash, path = rest.partition("/")
    if host not in ("", "localhost") or not slash or not path.strip("/"):
        raise InvalidInputError(
            f"{text!r} names no folder of this machine. Nothing was written. Use file:///folder or a path."
        )
    if "?" in path or "#" in path:
        raise InvalidInputError(
            f"{text!r} has a query or a fragment, which a file has not. Nothing was written. Spell '?' as %3F and '#' "
            "as %23."
        )
    return _local_address(unquote("/" + path), as_path=True)


def _local_address(text: str | bytes, *, as_path: bool) -> Address:
    """A local folder; ``as_path``: the caller says that it is one."""
    path = os.fsdecode(text)
    if not as_path:
        _refuse_slip(path)
    if re.search(r"%[0-9A-Fa-f]{2}", path) or "\\" in path or _CONTROL.search(path):
        raise InvalidInputError(
            f"The path {path!r} has a character ('%' and two digits, '\\' or a control character) that other engines "
            "read as part of a URL: they would not find the table. Nothing was written. Use another folder."
        )
    full = os.path.abspath(path)  # noqa: PTH100 - keeps symbolic links as given
    _refuse_log_folder(full)
    longest = max(full.split("/"), key=lambda part: len(os.fsencode(part)))
    if len(os.fsencode(longest)) > FOLDER_BYTES_MAX or len(os.fsencode(full)) > PATH_BYTES_MAX:
        raise InvalidInputError(
            f"The path {full[:80]!r}... is too long for a local table: {len(os.fsencode(full))} bytes, and {PATH_BYTES_MAX} leave "
            f"room for the table's files; a folder's name has at most {FOLDER_BYTES_MAX}. Nothing was written. Use a shorter one."
        )
    if os.environ.get(_LAMBDA) and not full.startswith(_KEPT_IN_LAMBDA):
        raise UnsafeConfigError(
            f"{full} is on the local disk of a Lambda function ({_LAMBDA} is set), which vanishes with it and with all "
            f"rows. Nothing was written. Use s3://bucket/path, or a file system that is mounted under {_KEPT_IN_LAMBDA}."
        )
    return Address(uri=full)


FOLDER_BYTES_MAX, PATH_BYTES_MAX = 255, 3500


def _refuse_log_folder(path: str) -> None:
    """Refuse what lies in a table's log: a table there would be taken for a part of that log."""
    above, found, _ = f"/{path}/".partition("/_delta_log/")
    if found:
        raise InvalidInputError(
            f"{path!r} is in the log of a Delta table, and no table. Nothing was written. Give the table's own folder, the one "
            f"above ({above if path.startswith('/') else above[1:]})."
        )


def _refuse_variable(text: str) -> None:
    if "${" in text:
        raise InvalidInputError(
            f"{text!r} has a variable that was not replaced ('${{'). Nothing was written. Give the address with its value; "
            "check that the variable is set."
        )


def _refuse_slip(path: str) -> None:
    _refuse_variable(path)
    first = path.partition("/")[0]
    if _SCHEME_LIKE.match(first):
        advice = "s3://bucket/path" if first.lower().startswith(("s3", "arn")) else "scheme://..."
        raise InvalidInputError(
            f"{path!r} begins like an address and is none, so it would be a folder of that name on this machine. "
            f"Nothing was written. Did you mean {advice}? A folder with a colon is given as ./{path}."
        )
    if first.startswith("~"):
        raise InvalidInputError(
            f"{path!r} begins with a shell's sign for a home folder, and would be a folder named {first!r} where this process runs. "
            f"Nothing was written. Give the whole path (os.path.expanduser({path!r})); a folder of that name is './{path}'."
        )
    if path.startswith(("/", "./", "../")) or path in (".", "..") or Path(path).exists():
        return
    dotted = re.fullmatch(r"\w+(\.\w+)+", path)
    named = "an Iceberg table needs catalog=" if dotted else f"s3://{path} is a table on S3"
    raise InvalidInputError(
        f"{path!r} could be a folder that is to be made on this machine, or a slip: {named}. Nothing was written. "
        f"For a folder write './{path}', or give a pathlib.Path."
    )
