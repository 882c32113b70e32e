"""Chooses which data files are put together: small ones of one partition in their order, and those with many deleted rows.

A file costs a reader its bytes, and a request that costs as much as :data:`OPEN_BYTES`.  A group is worth its work where what one
scan saves is a tenth of what must be written again, or more.  The largest file of a group is left out while it is larger than the
others together and than :data:`OPEN_BYTES`: a large file would else be copied for each few rows that come.  A smaller one costs less to
copy than the first scan pays to open it.  So each row is copied as often as the size of its file doubles, and besides a group copies at
most so many bytes; a partition keeps one file up to that size, and few beyond it.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

OPEN_BYTES = 4 * 2**20
"""What a reader pays for a file besides its bytes; as Spark counts it (``spark.sql.files.openCostInBytes``)."""
SMALL = 0.75
"""A file below this share of the target size is small."""
GONE = 0.3
"""A file of which so many of its rows are deleted is written again, whatever its size."""
PAYS = 0.1
"""The bytes that one scan must save for each byte that is written again."""


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A live data file: its name, which it keeps whatever rows of it are deleted, its partition, its bytes and rows.

    ``gone`` of its rows are deleted by ``deletes`` files or vectors, which a reader fetches besides.  ``stays`` says why it must
    stay as it is.
    """

    name: Hashable
    partition: Hashable
    size: int
    rows: int | None = None
    gone: int = 0
    deletes: int = 0
    stays: str = ""

    @property
    def live_bytes(self) -> int:
        """About the bytes of the rows that are left."""
        if not self.rows or not self.gone:
            return self.size
        return self.size * max(self.rows - self.gone, 0) // self.rows

    @property
    def is_worn(self) -> bool:
        """Whether many of its rows are deleted."""
        return bool(self.rows) and self.gone >= GONE * (self.rows or 0)


@dataclass(frozen=True)
class Group:
    """Files of one partition that are put together; ``heat`` of the last commits took files of the partition away."""

    files: tuple[StoredFile, ...]
    target: int
    heat: int = 0

    @cached_property
    def size(self) -> int:
        """The bytes that are read."""
        return sum(one.size for one in self.files)

    @cached_property
    def live_bytes(self) -> int:
        """About the bytes that are written."""
        return sum(one.live_bytes for one in self.files)

    @property
    def outputs(self) -> int:
        """About how many files come of it."""
        return -(-self.live_bytes // self.target)

    @property
    def requests_saved(self) -> int:
        """About how many requests one scan makes less."""
        return len(self.files) + sum(one.deletes for one in self.files) - self.outputs

    @property
    def worth(self) -> float:
        """The bytes that one scan saves for each byte that is read and written again."""
        saved = self.requests_saved * OPEN_BYTES + self.size - self.live_bytes
        return saved / max(self.size, 1)


@dataclass(frozen=True)
class Inventory:
    """What a table has: its version, its live files in their order, the size that its files should have.

    ``heat`` tells for a partition how many of the last commits took files away there; ``listing`` is the format's own.  ``served_by``
    is the service that puts its files together by itself.
    """

    version: int
    files: Sequence[StoredFile]
    target: int
    heat: Mapping[Hashable, int]
    listing: object = None
    served_by: str = ""

    @property
    def size(self) -> int:
        """The bytes of all files."""
        return sum(one.size for one in self.files)


def groups_of(found: Inventory) -> list[Group]:
    """The groups that are worth their work, the cold ones first, and of these those first that save most."""
    partitions: dict[Hashable, list[StoredFile]] = {}
    for one in found.files:
        if not one.stays and (one.live_bytes < SMALL * found.target or one.is_worn):
            partitions.setdefault(one.partition, []).append(one)
    groups = [
        Group(tuple(some), found.target, found.heat.get(partition, 0))
        for partition, files in partitions.items()
        for some in map(_evened, _neighbours(files, found.target))
    ]
    wanted = [one for one in groups if (len(one.files) > 1 or one.files[0].is_worn) and one.worth >= PAYS]
    return sorted(wanted, key=lambda one: (one.heat, -one.worth))


def _neighbours(files: Iterable[StoredFile], target: int) -> Iterator[list[StoredFile]]:
    """Files that follow each other, up to the target size."""
    some: list[StoredFile] = []
    size = 0
    for one in files:
        if some and size + one.live_bytes > target:
            yield some
            some, size = [], 0
        some.append(one)
        size += one.live_bytes
    if some:
        yield some


def _evened(files: list[StoredFile]) -> list[StoredFile]:
    """The files without those that are larger than the others together, and than what it costs to open one."""
    left, size = list(files), sum(one.live_bytes for one in files)
    while len(left) > 1:
        largest = max(left, key=lambda one: one.live_bytes)
        if largest.is_worn or largest.live_bytes <= max(size - largest.live_bytes, OPEN_BYTES):
            break
        left.remove(largest)
        size -= largest.live_bytes
    return left
