"""Makes the delete files of a write: one of each data file, from format version 3 on one Puffin file of all their vectors.

What was made serves every attempt in which the same rows of a data file are gone, whatever others did to other files.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from safewrite.changes.lookup.key_index import ascending
from safewrite.frames.parallel import windows
from safewrite.iceberg.data.manifests_v3 import VERSION
from safewrite.iceberg.metadata import table_of
from safewrite.iceberg.write.staging import Staging
from safewrite.protocol.ask import Limits
from safewrite.protocol.effects import Effect, Outcome
from safewrite.protocol.iceberg.head import TableVersion

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile
    from pyiceberg.table import FileScanTask

    from safewrite.changes.meaning.positions import Numbers
    from safewrite.iceberg.data.datafiles import StagedFile
    from safewrite.iceberg.write.position_deletes import UnmarkedRows

_AT_ONCE = 64
"""So many delete files are in memory at once; vectors are small, and all of a commit are, up to ``_PUFFIN_BYTES`` in one file."""
_PUFFIN_BYTES = 64 * 2**20
Gone: TypeAlias = "tuple[str, bytes]"
"""A data file and the places in it of rows that are gone."""


@dataclass
class DeleteFiles:
    """The delete files of one write; ``write_id`` is in their names."""

    write_id: str
    limits: Limits
    _made: dict[Gone, DataFile] = field(default_factory=dict, repr=False)
    _new: dict[Gone, tuple[DataFile, Numbers]] = field(default_factory=dict, repr=False)
    _stores: int = 0

    def note(
        self, head: TableVersion, task: FileScanTask, places: Numbers, live: UnmarkedRows | None
    ) -> Gone:
        """Rows of a data file go, of which these others are ``live``: a vector has all that went before, too."""
        places = all_marked(head, places, live)
        gone = task.file.file_path, places.tobytes()
        if gone not in self._made:
            self._new[gone] = task.file, places
        return gone

    def is_due(self, head: TableVersion) -> bool:
        """Whether those that were noted fill a request."""
        return len(self._new) >= _AT_ONCE and not _has_vectors(head)

    def upload(self, head: TableVersion) -> Generator[Effect, Outcome, None]:
        """Make and upload those that were noted: only then may a commit name them.

        Raises:
            StorageError: kind DATA_FILE_DAMAGED if one is not there, or an upload failed for good; nothing was committed.
        """
        staging = Staging(self.limits)
        made: dict[Gone, DataFile] = {}
        for named, files in self._encoded(head):
            yield from staging.upload({one.path: one for one in files}.values())
            made |= {gone: one.data_file for gone, one in zip(named, files, strict=True)}
        yield from staging.complete(())
        self._made |= made
        self._new = {}

    def _encoded(self, head: TableVersion) -> Iterator[tuple[Sequence[Gone], Sequence[StagedFile]]]:
        """The delete files of those that were noted; vectors that share a file have one body."""
        from safewrite.iceberg.write import position_deletes

        if not _has_vectors(head):
            named = [*self._new]
            paths = [self._path(head, "parquet") for _ in named]
            yield (
                named,
                [
                    position_deletes.encoded(*self._new[one], path)
                    for one, path in zip(named, paths, strict=True)
                ],
            )
            return
        vectors = {one: position_deletes.Vector.of(*told) for one, told in self._new.items()}
        for some in windows(
            [*vectors],
            lambda one: len(vectors[one].blob),
            files=max(len(vectors), 1),
            bytes_max=_PUFFIN_BYTES,
        ):
            path = self._path(head, "puffin")
            yield some, position_deletes.encoded_vectors([vectors[one] for one in some], path)

    def _path(self, head: TableVersion, kind: str) -> str:
        self._stores += 1
        name = f"{self.write_id}-d{self._stores}-deletes.{kind}"
        return table_of(head).location_provider().new_data_location(name)

    def __getitem__(self, gone: Gone) -> DataFile:
        return self._made[gone]

    def made(self) -> Iterator[DataFile]:
        """All that were uploaded, on any base."""
        yield from self._made.values()


def all_marked(head: TableVersion, places: Numbers, live: UnmarkedRows | None) -> Numbers:
    """The places that the delete file of a data file names, where those at ``places`` go."""
    return ascending(places, live.gone) if _has_vectors(head) and live is not None else places


def _has_vectors(head: TableVersion) -> bool:
    return table_of(head).metadata.format_version >= VERSION
