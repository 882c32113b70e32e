"""Lists and reads raw files, and keeps small documents, on S3 or in a local folder."""

from __future__ import annotations

import hashlib
import os
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import unquote, urlsplit

from safewrite.engine.settings_sent import travelling
from safewrite.errors import InvalidInputError, StorageError
from safewrite.surroundings import Surroundings, surroundings


@dataclass(frozen=True, slots=True)
class RawFile:
    """A file as a listing shows it.

    ``path`` is below the listed folder.  ``mark`` tells cheaply that it is the same as before, and ``tag`` names its
    content; a local file has no tag before it is read.
    """

    path: str
    size: int
    mark: str
    changed_ms: int
    tag: str | None = None

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]


class Storage(ABC):
    """A folder, wherever it is."""

    def __init__(self, uri: str) -> None:
        self.uri = uri.rstrip("/")

    @abstractmethod
    def files(self, prefix: str = "") -> Iterator[RawFile]:
        """All files below, in no order that matters.  Raises StorageError."""

    @abstractmethod
    def read(self, file: RawFile) -> tuple[bytes, str]:
        """What was listed, and its tag.

        Raises:
            StorageError: it is gone, or is no longer what was listed.
        """

    @abstractmethod
    def read_part(self, file: RawFile, start: int, length: int) -> bytes:
        """Some bytes of what was listed; fewer at its end.  Raises as :meth:`read`."""

    @abstractmethod
    def tag(self, file: RawFile) -> str:
        """The tag of what was listed, without its bytes in memory.  Raises as :meth:`read`."""

    @abstractmethod
    def travelling(self) -> Storage | None:
        """The same folder as another process reaches it, such as an executor of Spark; None where it cannot."""

    @abstractmethod
    def get(self, name: str) -> bytes | None:
        """A document; None if there is none.  Raises StorageError."""

    @abstractmethod
    def put(self, name: str, content: bytes) -> None:
        """Put a document in the place of the one of this name.  Raises StorageError."""

    @abstractmethod
    def after(self, folder: str, start: str) -> list[tuple[str, str]]:
        """Names in a folder that come after ``start``, in order, and a mark of each file's content.  Raises StorageError."""

    def check_inside(self, name: str) -> None:
        """Refuse a name that leads out of the folder: the log of a table may name its files so, and a job reads them.

        Raises:
            StorageError: it does.
        """
        if name.startswith("/") or ".." in unquote(name).split("/") or "\0" in name:
            raise StorageError(
                f"{name!r} leads out of {self.uri}, and was not read. Nothing was written. See who wrote the log that names it."
            )


def storage(uri: str, options: Mapping[str, str]) -> Storage:
    """The folder at an address: ``s3://bucket/prefix`` or a local path.

    Raises:
        InvalidInputError: another scheme.
    """
    scheme = urlsplit(uri).scheme
    if scheme in ("s3", "s3a"):
        return S3Storage(uri, options)
    if scheme in ("", "file"):
        return LocalStorage(urlsplit(uri).path if scheme else uri)
    raise InvalidInputError(
        f"{uri!r} is neither s3:// nor a local folder. Nothing was written. Raw files, the state and Delta tables are in one of these."
    )


class LocalStorage(Storage):
    """A folder of this machine; files are known by an MD5 of their content, as S3 knows most of its own."""

    def files(self, prefix: str = "") -> Iterator[RawFile]:
        base = Path(self.uri)
        if prefix and base.is_dir() and not (base / prefix).exists():
            return  # a table of which no file came yet
        try:
            for folder, _, names in os.walk(base / prefix, onerror=_raise, followlinks=True):
                for path in (Path(folder) / name for name in names):
                    if (found := _stat(path)) is not None:
                        mark = f"{found.st_size}-{found.st_mtime_ns}"
                        name = path.relative_to(base).as_posix()
                        yield RawFile(name, found.st_size, mark, found.st_mtime_ns // 1_000_000)
        except FileNotFoundError as error:
            raise _gone(self.uri, error) from error
        except OSError as error:
            raise StorageError(
                f"{self.uri} cannot be listed: {error}. Nothing was written. Try again."
            ) from error

    def read(self, file: RawFile) -> tuple[bytes, str]:
        with self._opened(file) as opened:
            content = opened.read()
        if len(content) != file.size:
            raise _changed(self.uri, file)
        return content, hashlib.md5(content, usedforsecurity=False).hexdigest()

    def read_part(self, file: RawFile, start: int, length: int) -> bytes:
        with self._opened(file) as opened:
            opened.seek(start)
            content = opened.read(length)
        if len(content) != max(0, min(length, file.size - start)):
            raise _changed(self.uri, file)
        return content

    def tag(self, file: RawFile) -> str:
        with self._opened(file) as opened:
            digest = hashlib.md5(usedforsecurity=False)
            while block := opened.read(2**20):
                digest.update(block)
            return digest.hexdigest()

    def travelling(self) -> Storage:
        return self

    @contextmanager
    def _opened(self, file: RawFile) -> Iterator[BinaryIO]:
        """The file, which is still the one that was listed when the block ends."""
        try:
            with (Path(self.uri) / file.path).open("rb") as opened:
                yield opened
                found = os.fstat(opened.fileno())
        except OSError as error:
            raise _changed(self.uri, file) from error
        if f"{found.st_size}-{found.st_mtime_ns}" != file.mark:
            raise _changed(self.uri, file)

    def get(self, name: str) -> bytes | None:
        self.check_inside(name)
        try:
            return (Path(self.uri) / name).read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise StorageError(f"{self.uri}/{name} cannot be read: {error}. Nothing was written.") from error

    def put(self, name: str, content: bytes) -> None:
        path = Path(self.uri) / name
        part = path.with_name(f".{path.name}.{os.getpid()}-{os.urandom(4).hex()}")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            part.write_bytes(content)
            part.replace(path)
        except OSError as error:
            raise StorageError(
                f"{path} cannot be written: {error}. The tables are not touched by this."
            ) from error

    def after(self, folder: str, start: str) -> list[tuple[str, str]]:
        found = []
        try:
            with os.scandir(Path(self.uri) / folder) as entries:
                for entry in entries:
                    if entry.name > start and entry.is_file():
                        stat = entry.stat()
                        found.append((entry.name, f"{stat.st_size}-{stat.st_mtime_ns}-{stat.st_ino}"))
        except FileNotFoundError:
            return []
        except OSError as error:
            raise StorageError(
                f"{self.uri}/{folder} cannot be listed: {error}. Nothing was written."
            ) from error
        return sorted(found)


class S3Storage(Storage):
    """A prefix of a bucket; files are known by their eTag and size."""

    def __init__(self, uri: str, options: Mapping[str, str]) -> None:
        super().__init__(uri)
        parts = urlsplit(self.uri)
        self.bucket, self.prefix = parts.netloc, parts.path.strip("/")
        self.options = dict(options)
        self._held: tuple[int, Any] = (0, None)

    @property
    def client(self) -> Any:
        """This process's client: a fork has one of its own.  A job stays with the store that it began with."""
        process, held = self._held
        if process != os.getpid():
            held = s3_client(self.options)
            self._held = (os.getpid(), held)
        return held

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_held": (0, None)}

    def _key(self, name: str) -> str:
        return f"{self.prefix}/{name}" if self.prefix else name

    def files(self, prefix: str = "") -> Iterator[RawFile]:
        below = self._key("")
        pages = self.client.get_paginator("list_objects_v2")
        with _s3(f"{self.uri}/{prefix} cannot be listed"):
            for page in pages.paginate(Bucket=self.bucket, Prefix=self._key(prefix)):
                for found in page.get("Contents", ()):
                    if found["Key"].endswith("/"):
                        continue  # what consoles make of an empty folder
                    tag = f"{found['ETag'].strip(chr(34))}-{found['Size']}"
                    changed_ms = int(found["LastModified"].timestamp() * 1000)
                    yield RawFile(found["Key"].removeprefix(below), found["Size"], tag, changed_ms, tag)

    def read(self, file: RawFile) -> tuple[bytes, str]:
        content = self._content(file)
        if len(content) != file.size:
            raise _changed(self.uri, file)
        return content, self.tag(file)

    def read_part(self, file: RawFile, start: int, length: int) -> bytes:
        length = min(length, file.size - start)
        if length <= 0:
            return b""
        content = self._content(file, Range=f"bytes={start}-{start + length - 1}")
        if len(content) != length:
            raise _changed(self.uri, file)
        return content

    def tag(self, file: RawFile) -> str:
        assert file.tag is not None
        return file.tag

    def _content(self, file: RawFile, **what: str) -> bytes:
        etag = self.tag(file).rpartition("-")[0]
        try:
            with _s3(f"{self.uri}/{file.path} cannot be read"):
                answer = self.client.get_object(
                    Bucket=self.bucket, Key=self._key(file.path), IfMatch=f'"{etag}"', **what
                )
                content: bytes = answer["Body"].read()
        except _RefusedError as error:
            raise _changed(self.uri, file) from error
        return content

    def travelling(self) -> Storage | None:
        options = travelling(self.options, self.client)
        return None if options is None else S3Storage(self.uri, options)

    def get(self, name: str) -> bytes | None:
        self.check_inside(name)
        try:
            with _s3(f"{self.uri}/{name} cannot be read"):
                content: bytes = self.client.get_object(Bucket=self.bucket, Key=self._key(name))[
                    "Body"
                ].read()
        except _RefusedError:
            return None
        return content

    def put(self, name: str, content: bytes) -> None:
        with _s3(f"{self.uri}/{name} cannot be written"):
            self.client.put_object(Bucket=self.bucket, Key=self._key(name), Body=content)

    def after(self, folder: str, start: str) -> list[tuple[str, str]]:
        prefix = self._key(folder) + "/"
        pages = self.client.get_paginator("list_objects_v2")
        with _s3(f"{self.uri}/{folder} cannot be listed"):
            return [
                (found["Key"].removeprefix(prefix), str(found["ETag"]))
                for page in pages.paginate(Bucket=self.bucket, Prefix=prefix, StartAfter=prefix + start)
                for found in page.get("Contents", ())
            ]


class _RefusedError(StorageError):
    """S3 says that there is no such object, or no longer."""


class _s3:  # noqa: N801 - a context, read like a function
    """Turns botocore's errors into ours."""

    def __init__(self, what: str) -> None:
        self.what = what

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        from botocore.exceptions import BotoCoreError, ClientError, HTTPClientError

        if isinstance(error, ClientError):
            code = str(error.response.get("Error", {}).get("Code", ""))
            if code in ("NoSuchKey", "404", "412", "PreconditionFailed"):
                raise _RefusedError(f"{self.what}: {error}. Nothing was written.") from error
        if isinstance(error, BotoCoreError | ClientError | HTTPClientError):
            raise StorageError(
                f"{self.what}: {error}. Nothing was written by this. Check address, credentials and permissions, and run again."
            ) from error


def s3_client(options: Mapping[str, str]) -> Any:
    """A client for ``storage_options``; what they leave out comes from the environment, as boto3 finds it."""
    return _client(os.getpid(), tuple(sorted(options.items())), surroundings())


@lru_cache(16)
def _client(process: int, options: tuple[tuple[str, str], ...], around: Surroundings) -> Any:
    """Clients may be shared by threads, and take a tenth of a second to make."""
    import boto3
    from botocore.config import Config

    given = dict(options)
    return boto3.session.Session().client(
        "s3",
        endpoint_url=given.get("AWS_ENDPOINT_URL_S3") or given.get("AWS_ENDPOINT_URL"),
        region_name=given.get("AWS_REGION") or given.get("AWS_DEFAULT_REGION"),
        aws_access_key_id=given.get("AWS_ACCESS_KEY_ID"),
        aws_secret_access_key=given.get("AWS_SECRET_ACCESS_KEY"),
        aws_session_token=given.get("AWS_SESSION_TOKEN"),
        config=Config(retries={"mode": "standard", "max_attempts": 5}, max_pool_connections=64),
    )


def _stat(path: Path) -> os.stat_result | None:
    """None for a file that was taken away since its folder was read."""
    try:
        return path.stat()
    except FileNotFoundError:
        return None


def _raise(error: OSError) -> None:
    raise error


def _gone(uri: str, error: OSError) -> StorageError:
    return StorageError(f"{uri} is not there: {error}. Nothing was written. Check raw.location.")


def _changed(uri: str, file: RawFile) -> StorageError:
    return StorageError(
        f"{uri}/{file.path} is no longer what was listed: it was written again or taken away meanwhile. Nothing of it was "
        "written. Run again."
    )
