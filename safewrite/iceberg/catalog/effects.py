"""Names what planning an overwrite asks for, besides reading and writing files."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from safewrite.protocol.effects import Effect
from safewrite.protocol.iceberg.head import TableVersion

if TYPE_CHECKING:
    from pyiceberg.expressions import BooleanExpression
    from pyiceberg.table import FileScanTask

    from safewrite.iceberg.data.known_manifests import KnownManifests


@dataclass(frozen=True, slots=True)
class PlanFiles(Effect):
    """Data files that may hold rows of a filter, with their delete files: ``Ok(tuple[FileScanTask, ...])``.

    ``at`` is the snapshot that is planned; None: the newest of the branch.  Else ``Failed | Missing | Unknown``.  ``known`` has the manifests that were decoded before, and takes those of now.
    """

    SAYS = "Reading the table's manifests"
    head: TableVersion
    row_filter: BooleanExpression
    known: KnownManifests | None = field(default=None, compare=False, repr=False)
    at: int | None = None


@dataclass(frozen=True, slots=True)
class ReadRows(Effect):
    """The live rows of one data file under the table's schema: ``Ok(pa.Table) | Failed | Missing | Unknown``.

    ``columns`` are those to be read; None is all of them.  ``with_ids``: with the ids that go with each row (``data.lineage``).
    ``without`` is the same file with other delete files: the rows that live under these are left out.
    """

    SAYS = "Reading {0.task.file.file_path}"
    head: TableVersion
    task: FileScanTask
    columns: tuple[str, ...] | None = None
    with_ids: bool = False
    without: FileScanTask | None = None
