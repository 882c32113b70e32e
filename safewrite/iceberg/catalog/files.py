"""Reads and writes a table's files through its catalog's FileIO, and holds files for Avro in memory.

Every file has a name of its own, so it is harmless whatever a file system repeats behind our back.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyiceberg.io import FileIO, InputFile, OutputFile

from safewrite.iceberg.catalog.outcomes import classify_file_error
from safewrite.iceberg.catalog.s3 import direct
from safewrite.protocol.effects import Failed, Ok, Outcome
from safewrite.protocol.member_queue import FOLDER
from safewrite.protocol.values import Tail
from safewrite.stores.local import LocalObjects

if TYPE_CHECKING:
    from pyiceberg.io import InputStream, OutputStream


class FileStore:
    """Objects by their full locations, over a FileIO that may change (credentials are lent for a time)."""

    def __init__(self, file_io: Callable[[], FileIO], root: str) -> None:
        self.file_io = file_io
        self.root = root

    def get(self, path: str) -> Outcome:
        if (own := direct(self.file_io(), path)) is not None:
            return own[0].get(own[1])
        try:
            with self.file_io().new_input(path).open() as stream:
                return Ok(stream.read())
        except Exception as error:  # noqa: BLE001 - each FileIO raises errors of its own
            return classify_file_error(error)

    def get_range(self, path: str, start: int, length: int) -> Outcome:
        if (own := direct(self.file_io(), path)) is not None:
            return own[0].get_range(own[1], start, length)
        try:
            with self.file_io().new_input(path).open() as stream:
                stream.seek(start)
                return Ok(stream.read(length))
        except Exception as error:  # noqa: BLE001 - as above
            return classify_file_error(error)

    def get_tail(self, path: str, length: int) -> Outcome:
        if (own := direct(self.file_io(), path)) is not None:
            return own[0].get_tail(own[1], length)
        try:
            with self.file_io().new_input(path).open() as stream:
                size = _size(stream)
                stream.seek(max(0, size - length))
                return Ok(Tail(size, stream.read()))
        except Exception as error:  # noqa: BLE001 - as above
            return classify_file_error(error)

    def list(self, prefix: str, start_after: str, limit: int) -> Outcome:
        """List what begins with a location, where S3 or the local disk can be asked without the FileIO, which cannot list."""
        file_io = self.file_io()
        if (own := direct(file_io, prefix)) is not None:
            root = prefix.removesuffix(own[1])
            return _under(root, own[0].list(own[1], start_after.removeprefix(root), limit))
        if (place := _on_disk(file_io, prefix)) is not None:
            folder, _, name = place.rpartition("/")
            root = prefix.removesuffix(name)
            return _under(root, LocalObjects(f"{folder}/").list(name, start_after.removeprefix(root), limit))
        return Failed("a FileIO cannot list")

    def put(self, path: str, body: bytes) -> Outcome:
        if (own := direct(self.file_io(), path)) is not None:
            return own[0].put(own[1], body)
        if f"/{FOLDER}" in path and (file := _on_disk(self.file_io(), path)) is not None:
            return LocalObjects(Path(file).parent).put(
                Path(file).name, body
            )  # others may read it at once: whole or absent
        try:
            with self.file_io().new_output(path).create(overwrite=True) as stream:
                stream.write(body)
        except Exception as error:  # noqa: BLE001 - as above
            return classify_file_error(error)
        return Ok()

    def put_if_absent(self, path: str, body: bytes) -> Outcome:
        return Failed("a FileIO has no conditional create")

    def delete(self, path: str) -> Outcome:
        if (own := direct(self.file_io(), path)) is not None:
            return own[0].delete(own[1])
        try:
            self.file_io().delete(path)
        except FileNotFoundError:
            return Ok()
        except Exception as error:  # noqa: BLE001 - as above
            return classify_file_error(error)
        return Ok()


def _on_disk(file_io: FileIO, location: str) -> str | None:
    """The path of a location on the local disk; None elsewhere."""
    path = location.removeprefix("file://")
    return path if path.startswith("/") and type(file_io).__name__ == "PyArrowFileIO" else None


def _under(root: str, outcome: Outcome) -> Outcome:
    """A listing with the whole locations of what it lists."""
    if not isinstance(outcome, Ok) or not isinstance(outcome.value, tuple):
        return outcome
    return Ok(tuple(replace(one, path=f"{root}{one.path}") for one in outcome.value))


def _size(stream: InputStream) -> int:
    stream.seek(0, 2)
    return int(stream.tell())


class MemoryFile(OutputFile):
    """A file that PyIceberg's Avro code writes and reads in memory."""

    def __init__(self, location: str, body: bytes = b"") -> None:
        super().__init__(location)
        self.body = body

    def __len__(self) -> int:
        return len(self.body)

    def exists(self) -> bool:
        return bool(self.body)

    def to_input_file(self) -> InputFile:
        return _Source(self)

    def create(self, overwrite: bool = False) -> OutputStream:
        return _Sink(self)


class MemoryIO(FileIO):
    """A FileIO that shows one file under whatever name it is asked for."""

    def __init__(self, body: bytes) -> None:
        super().__init__()
        self.body = body

    def new_input(self, location: str) -> InputFile:
        return MemoryFile(location, self.body).to_input_file()

    def new_output(self, location: str) -> OutputFile:
        raise NotImplementedError("a file in memory is not written through a FileIO")

    def delete(self, location: str | InputFile | OutputFile) -> None:
        raise NotImplementedError("a file in memory is not deleted")


class _Source(InputFile):
    """A memory file as PyIceberg reads it."""

    def __init__(self, file: MemoryFile) -> None:
        super().__init__(file.location)
        self._file = file

    def __len__(self) -> int:
        return len(self._file)

    def exists(self) -> bool:
        return self._file.exists()

    def open(self, seekable: bool = True) -> InputStream:
        return io.BytesIO(self._file.body)


class _Sink(io.BytesIO):
    """A buffer that hands its content to its file when it is closed."""

    def __init__(self, file: MemoryFile) -> None:
        super().__init__()
        self._file = file

    def close(self) -> None:
        if not self.closed:
            self._file.body = self.getvalue()
        super().close()

    def __exit__(self, *exc: Any) -> None:
        self.close()
