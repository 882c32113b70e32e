"""Keeps a table in a local folder, for development: files, and a ledger in SQLite."""

from __future__ import annotations

import contextlib
import errno
import os
import sqlite3
import uuid
from collections.abc import Iterator, Sequence
from operator import attrgetter
from pathlib import Path

from safewrite.protocol.effects import Exists, Failed, Missing, Ok, Outcome, Unknown
from safewrite.protocol.values import LedgerRecord, Listed, Tail
from safewrite.stores.advice import cause_of


class LocalObjects:
    """Files under a folder.  A create is a hard link: whole or absent, and never over another file."""

    def __init__(self, folder: Path | str) -> None:
        self.folder = Path(folder).absolute()
        self.root = str(self.folder)

    def get(self, path: str) -> Outcome:
        try:
            return Ok((self.folder / path).read_bytes())
        except FileNotFoundError:
            return Missing()
        except OSError as error:
            return _unread(error)

    def get_range(self, path: str, start: int, length: int) -> Outcome:
        outcome = self.get(path)
        return Ok(outcome.value[start : start + length]) if _is_bytes(outcome) else outcome  # type: ignore[union-attr,index]

    def get_tail(self, path: str, length: int) -> Outcome:
        try:
            with (self.folder / path).open("rb") as file:
                size = file.seek(0, os.SEEK_END)
                file.seek(max(0, size - length))
                return Ok(Tail(size, file.read()))
        except FileNotFoundError:
            return Missing()
        except OSError as error:
            return _unread(error)

    def list(self, prefix: str, start_after: str, limit: int) -> Outcome:
        inside = prefix.rpartition("/")[0]
        try:
            found = sorted(_files(self.folder, inside, prefix, start_after), key=attrgetter("path"))
        except OSError as error:
            return _unread(error)
        return Ok(tuple(found[:limit] if limit else found))

    def put(self, path: str, body: bytes) -> Outcome:
        return self._write(path, body, exclusive=False)

    def put_if_absent(self, path: str, body: bytes) -> Outcome:
        return self._write(path, body, exclusive=True)

    def delete(self, path: str) -> Outcome:
        try:
            (self.folder / path).unlink(missing_ok=True)
        except OSError as error:
            return Unknown(str(error))
        return Ok()

    def _write(self, path: str, body: bytes, *, exclusive: bool) -> Outcome:
        target = self.folder / path
        draft = target.with_name(f".{target.name}.{uuid.uuid4()}.tmp")
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            with draft.open("xb") as file:
                file.write(body)
                file.flush()
                os.fsync(file.fileno())
            if exclusive:
                os.link(draft, target)
            else:
                draft.replace(target)
            self._sync_folder(target.parent)
        except FileExistsError:
            return Exists()
        except OSError as error:
            cause = cause_of(error)
            advice = cause.advice if cause else ""
            return Failed(str(error), advice) if not target.exists() else Unknown(str(error), advice)
        finally:
            with contextlib.suppress(OSError):
                draft.unlink(missing_ok=True)
        return Ok()

    @staticmethod
    def _sync_folder(folder: Path) -> None:
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _unread(error: OSError) -> Unknown:
    """The outcome for a file or folder that exists and could not be read."""
    if isinstance(error, PermissionError):
        return Unknown(str(error), "Allow this user to read the table's folder.", asks_max=1)
    if isinstance(error, NotADirectoryError | IsADirectoryError):
        return Unknown(
            str(error), "A file stands where a folder should be, or the reverse: move it away.", asks_max=1
        )
    cause = cause_of(error)
    return Unknown(str(error)) if cause is None else Unknown(str(error), cause.advice, cause.asks_max)


def _files(root: Path, inside: str, prefix: str, start_after: str) -> Iterator[Listed]:
    """The files of a folder and of those below it; nothing but their names is read of those that are not listed.

    Raises:
        OSError: a folder cannot be read, which is not an empty one (G10); a missing one is.
    """
    start = f"{inside}/" if inside else ""
    with contextlib.suppress(FileNotFoundError), os.scandir(root / inside) as entries:
        for entry in entries:
            path = start + entry.name
            is_after = path > start_after
            # Below a folder that comes before it, names come after it only if it begins with the folder's name.
            if not (is_after or start_after.startswith(path)) or not path.startswith(prefix):
                continue
            if entry.is_dir():
                if not entry.is_symlink():
                    yield from _files(root, path, prefix, start_after)
            elif is_after:
                with contextlib.suppress(FileNotFoundError):  # removed while we looked
                    yield _listed(path, entry.stat())


def _listed(path: str, status: os.stat_result) -> Listed:
    etag = f"{status.st_ino:x}-{status.st_mtime_ns:x}"
    return Listed(path, status.st_size, status.st_mtime_ns // 1_000_000, etag)


_NAMES = ("key", "base_version", "fingerprint", "version", "in_doubt_at", "table_id")
_columns = attrgetter(*_NAMES)


class SqliteLedger:
    """Idempotency keys of one local table, in ``_safewrite/ledger.sqlite`` next to its data."""

    batch_max = 1000

    def __init__(self, file: Path | str, *, busy_timeout_s: float = 30.0) -> None:
        self.file = Path(file)
        self.busy_timeout_s = busy_timeout_s

    def get(self, key: str) -> Outcome:
        try:
            database = self._connected()
            try:
                row = database.execute(
                    "SELECT key, base_version, fingerprint, version, in_doubt_at, table_id FROM ledger "
                    "WHERE key = ?",
                    (key,),
                ).fetchone()
            finally:
                database.close()
        except (sqlite3.Error, OSError) as error:
            return _unanswered(error)
        return Ok(LedgerRecord(*row)) if row else Missing()

    def records(self, limit: int) -> Outcome:
        """``Ok`` of this many keys of the latest commits at most, and whether these are all."""
        query = f"SELECT {', '.join(_NAMES)} FROM ledger WHERE version IS NOT NULL ORDER BY version DESC LIMIT {limit + 1:d}"
        try:
            with contextlib.closing(self._connected()) as database:
                rows = database.execute(query).fetchall()
        except (sqlite3.Error, OSError) as error:
            return _unanswered(error)
        return Ok(([LedgerRecord(*row) for row in rows[:limit]], len(rows) <= limit))

    def intend(self, record: LedgerRecord, expire_time_s: int) -> Outcome:
        return self.intend_many((record,), expire_time_s)[0]

    def commit(self, record: LedgerRecord, expire_time_s: int) -> Outcome:
        return self.commit_many((record,), expire_time_s)[0]

    def get_many(self, names: Sequence[str]) -> tuple[Outcome, ...]:
        return tuple(self.get(name) for name in names)

    def intend_many(self, records: Sequence[LedgerRecord], expire_time_s: int) -> tuple[Outcome, ...]:
        return self._put("INSERT OR IGNORE", records, expire_time_s)

    def commit_many(self, records: Sequence[LedgerRecord], expire_time_s: int) -> tuple[Outcome, ...]:
        return self._put("INSERT OR REPLACE", records, expire_time_s)

    def _put(self, verb: str, records: Sequence[LedgerRecord], expire_time_s: int) -> tuple[Outcome, ...]:
        """Put records in one transaction."""
        statement = f"{verb} INTO ledger ({', '.join(_NAMES)}, expire_time_s) VALUES (?, ?, ?, ?, ?, ?, ?)"
        try:
            database = self._connected()
            try:
                with database:  # a transaction
                    counts = [
                        database.execute(statement, (*_columns(record), expire_time_s)).rowcount
                        for record in records
                    ]
            finally:
                database.close()
        except (sqlite3.Error, OSError) as error:
            return (_unanswered(error),) * len(records)
        return tuple(Ok() if count == 1 else Exists() for count in counts)

    def _connected(self) -> sqlite3.Connection:
        """A connection, to be closed by who asked for it.

        No generator hands it over: one that is broken off would hold its transaction for as long as somebody keeps the error.
        """
        self.file.parent.mkdir(parents=True, exist_ok=True)
        database = sqlite3.connect(self.file, timeout=self.busy_timeout_s)
        try:
            database.execute(
                "CREATE TABLE IF NOT EXISTS ledger (key TEXT PRIMARY KEY, base_version INTEGER NOT NULL, "
                "fingerprint TEXT NOT NULL, version INTEGER, in_doubt_at INTEGER, "
                "expire_time_s INTEGER NOT NULL, table_id TEXT)"
            )
            if "table_id" not in {row[1] for row in database.execute("PRAGMA table_info(ledger)")}:
                database.execute("ALTER TABLE ledger ADD COLUMN table_id TEXT")
        except BaseException:
            database.close()
            raise
        return database


def _unanswered(error: sqlite3.Error | OSError) -> Unknown:
    """The outcome for a ledger that cannot be read or written, with what helps where SQLite says why."""
    cause = cause_of(error)
    advice = "" if cause is None else cause.advice
    for begins, number in (("database or disk is full", errno.ENOSPC), ("attempt to write a readonly", errno.EROFS),
                           ("unable to open database file", errno.EACCES)):  # fmt: skip
        if str(error).startswith(begins):
            found = cause_of(OSError(number, str(error)))
            advice = found.advice if found else ""
    return Unknown(str(error), advice, 1 if advice else None)


def _is_bytes(outcome: Outcome) -> bool:
    return isinstance(outcome, Ok) and isinstance(outcome.value, bytes)
