"""Shows Arrow a Parquet file after only some of its byte ranges were fetched."""

from __future__ import annotations

import io
from bisect import bisect_right
from collections.abc import Collection, Container, Iterable
from typing import IO, TYPE_CHECKING, Any, cast

import pyarrow as pa

from safewrite.delta.log.stats_text import stats_text

if TYPE_CHECKING:
    import pyarrow.parquet as pq

TAIL = 64 * 1024
"""Bytes fetched from a file's end: what Arrow reads for a footer, and often the whole file."""
MAGIC = b"PAR1"
GAP = 4 * 1024
"""Ranges closer than this are fetched as one: a request costs more than so many bytes."""
REQUIRED = {
    "protocol": "protocol.minReaderVersion",
    "metaData": "metaData.id",
    "txn": "txn.appId",
    "domainMetadata": "domainMetadata.domain",
    "add": "add.path",
    "remove": "remove.path",
    "sidecar": "sidecar.path",
}
"""A field that every action of a kind has: where it is NULL, there is no such action (PROTOCOL.md)."""
MAPS = frozenset({"options", "configuration", "partitionValues", "tags"})
"""Fields that are maps in the checkpoint schema; Arrow shows a map as a list of pairs."""
STATS_PARSED = "stats_parsed"
PARSED = frozenset({STATS_PARSED, "partitionValues_parsed"})
"""Copies of other fields in the table's own types.  Statistics may be there in this form alone (``delta.checkpoint.writeStatsAsJson``)."""


class UnreadableError(Exception):
    """The bytes are no Parquet file, or a torn one."""


class HoleError(Exception):
    """A range was asked for that was not fetched."""


class RangedFile(io.RawIOBase):
    """A read-only file of ``size`` bytes with some ranges present."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size
        self._starts: list[int] = []
        self._pieces: list[bytes] = []
        self._position = 0

    def add(self, start: int, data: bytes) -> None:
        """Fill in the bytes from ``start`` on."""
        at = bisect_right(self._starts, start)
        self._starts.insert(at, start)
        self._pieces.insert(at, data)

    def piece(self, start: int, length: int) -> bytes | None:
        """The bytes of a range if one fetched piece holds all of it, else None."""
        for at in range(bisect_right(self._starts, start) - 1, -1, -1):
            offset = start - self._starts[at]
            if offset + length <= len(self._pieces[at]):
                return self._pieces[at][offset : offset + length]
        return None

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self.size}[whence]
        self._position = base + offset
        return self._position

    def read(self, size: int = -1) -> bytes:
        rest = max(0, self.size - self._position)
        length = rest if size < 0 else min(size, rest)
        data = self.piece(self._position, length)
        if data is None:
            raise HoleError(f"bytes {self._position}+{length} were not fetched")
        self._position += length
        return data

    def readinto(self, buffer: Any) -> int:
        data = self.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)


def missing_footer(file: RangedFile) -> tuple[int, int] | None:
    """The range ``(start, length)`` of the footer that is still to be fetched; None if it is all there.

    Raises:
        UnreadableError: the file does not end as a Parquet file does.
    """
    end = file.piece(file.size - 8, 8) if file.size >= 12 else None
    if end is None or end[4:] != MAGIC:
        raise UnreadableError("no Parquet magic at its end")
    length = int.from_bytes(end[:4], "little") + 8
    if length > file.size:
        raise UnreadableError("its footer is longer than the file")
    if file.piece(file.size - length, length) is not None:
        return None
    return file.size - length, length


def open_file(file: RangedFile) -> pq.ParquetFile:
    """Parse the footer.  Raises UnreadableError if it is garbled."""
    import pyarrow.parquet as pq

    try:
        return pq.ParquetFile(cast("IO[bytes]", file), pre_buffer=False, page_checksum_verification=True)
    except (pa.ArrowException, OSError, HoleError) as error:
        raise UnreadableError(str(error)) from error


def groups_with(metadata: pq.FileMetaData, root: str) -> list[int]:
    """Row groups in which the column ``root`` is not NULL throughout, by statistics where there are any."""
    return [
        group
        for group in range(metadata.num_row_groups)
        if any(_root(chunk) == root for chunk in _chunks(metadata, group))
        and not any(
            chunk.path_in_schema == REQUIRED.get(root) and _all_null(chunk)
            for chunk in _chunks(metadata, group)
        )
    ]


def ranges(
    metadata: pq.FileMetaData, roots: Collection[str], groups: Container[int] | None = None
) -> list[tuple[int, int]]:
    """``(start, length)`` of the column chunks that hold anything of ``roots``, in all row groups or some; adjacent ones joined."""
    spans = [
        _span(chunk)
        for root in roots
        for group in groups_with(metadata, root)
        if groups is None or group in groups
        for chunk in _chunks(metadata, group)
        if _root(chunk) == root
    ]
    return _joined(spans)


def actions(file: pq.ParquetFile, root: str) -> list[dict[str, Any]]:
    """The actions of one kind in a checkpoint file, as the log would spell them.

    Raises:
        UnreadableError: the column chunks are garbled.
        HoleError: a column chunk was not fetched.
    """
    groups = groups_with(file.metadata, root)
    if not groups:
        return []
    leaves = [chunk.path_in_schema for chunk in _chunks(file.metadata, 0) if _root(chunk) == root]
    columns = sorted({".".join(leaf.split(".")[:2]) for leaf in leaves if leaf.split(".")[1] not in PARSED})
    try:
        values = file.read_row_groups(groups, columns=columns, use_threads=False).column(root).drop_null()
        found = [plain(value) for value in values.to_pylist() if value is not None]
        parsed = f"{root}.{STATS_PARSED}"
        if any(leaf.startswith(f"{parsed}.") for leaf in leaves) and not all("stats" in one for one in found):
            _add_stats(found, file.read_row_groups(groups, columns=[parsed], use_threads=False).column(root))
        return found
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise UnreadableError(str(error)) from error


def _add_stats(found: list[dict[str, Any]], parsed: pa.ChunkedArray) -> None:
    """Give actions without a text of their statistics what the checkpoint has of them in the table's own types."""
    for action, one in zip(found, parsed.drop_null(), strict=True):
        if "stats" in action:
            continue
        try:
            text = stats_text(one.as_py()[STATS_PARSED])
        except (ValueError, TypeError):  # Python has no such value: a missing bound costs time, no rows
            text = None
        if text is not None:
            action["stats"] = text


def plain(value: dict[str, Any]) -> dict[str, Any]:
    """A struct of a checkpoint without its NULL fields, maps as dicts."""
    content: dict[str, Any] = {}
    for name, item in value.items():
        if item is None:
            continue
        if name in MAPS and isinstance(item, list):  # the configuration of a domain is a text
            content[name] = dict(item)
        elif isinstance(item, dict):
            content[name] = plain(item)
        else:
            content[name] = item
    return content


def _chunks(metadata: pq.FileMetaData, group: int) -> Iterable[pq.ColumnChunkMetaData]:
    row_group = metadata.row_group(group)
    return [row_group.column(i) for i in range(row_group.num_columns)]


def _root(chunk: pq.ColumnChunkMetaData) -> str:
    root: str = chunk.path_in_schema.partition(".")[0]
    return root


def _all_null(chunk: pq.ColumnChunkMetaData) -> bool:
    statistics = chunk.statistics
    return statistics is not None and statistics.null_count == chunk.num_values


def _span(chunk: pq.ColumnChunkMetaData) -> tuple[int, int]:
    start = chunk.data_page_offset
    if chunk.has_dictionary_page and chunk.dictionary_page_offset:
        start = min(start, chunk.dictionary_page_offset)
    return start, chunk.total_compressed_size


def _joined(spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    joined: list[tuple[int, int]] = []
    for start, length in sorted(spans):
        if joined and start <= joined[-1][0] + joined[-1][1] + GAP:
            before = joined[-1]
            joined[-1] = (before[0], max(before[1], start + length - before[0]))
        else:
            joined.append((start, length))
    return joined
