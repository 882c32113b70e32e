"""Decides which data files a predicate can touch, and which it covers whole, without reading rows.

PyIceberg's own plan under a filter is of no use here (0.12.0): its residuals compare NULL partition
values with ``<`` and fail (apache/iceberg-python#3498), and it goes by partition values of type
double, which its manifest reader rounds to 32 bits (#3808).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.expressions.visitors import (
    _InclusiveMetricsEvaluator,
    _StrictMetricsEvaluator,
    expression_evaluator,
    inclusive_projection,
    strict_projection,
)
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.types import (
    DateType,
    DecimalType,
    DoubleType,
    IntegerType,
    LongType,
    StringType,
    TimestampType,
    TimestamptzType,
)

from safewrite.frames.predicate import Predicate
from safewrite.iceberg.data.expressions import may_match, must_match
from safewrite.iceberg.data.known_manifests import bound_of
from safewrite.iceberg.data.partitions import typed

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile
    from pyiceberg.table import FileScanTask
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.typedef import Record
    from pyiceberg.types import PrimitiveType

    Judge: TypeAlias = Callable[[Record], bool]


class Pruning:
    """One predicate over one version of a table; ``schema`` is the table's, in Arrow.

    Delete files only take rows away, so what holds for all rows of a file holds with them too.
    """

    def __init__(self, predicate: Predicate, metadata: TableMetadata, schema: pa.Schema) -> None:
        self._schema = metadata.schema()
        self._specs = {number: typed(spec, metadata) for number, spec in metadata.specs().items()}
        self._may, self._must = may_match(predicate, schema), must_match(predicate, schema)
        self._inclusive = _InclusiveMetricsEvaluator(self._schema, self._may)
        self._strict = _StrictMetricsEvaluator(self._schema, self._must)
        self._partitions: dict[int, tuple[Judge, Judge]] = {}

    def may_match(self, file: DataFile) -> bool:
        """False only if the predicate is TRUE for no row of the file."""
        inclusive, _ = self._of_partitions(file.spec_id)
        return inclusive(file.partition) and self._inclusive.eval(file)

    def must_match(self, file: DataFile) -> bool:
        """True only if the predicate is TRUE for every row of the file."""
        _, strict = self._of_partitions(file.spec_id)
        return strict(file.partition) or self._strict.eval(file)

    def _of_partitions(self, spec_id: int) -> tuple[Judge, Judge]:
        """The evaluators of one spec's partition values: inclusive, and strict."""
        if spec_id not in self._partitions:
            spec = self._specs[spec_id]
            fields = Schema(*spec.partition_type(self._schema).fields)
            exact = [f for f in spec.fields if self._decides(f, fields)]
            spec = PartitionSpec(*exact, spec_id=spec_id)
            may = inclusive_projection(self._schema, spec)(self._may)
            must = strict_projection(self._schema, spec)(self._must)
            self._partitions[spec_id] = (
                expression_evaluator(fields, may, case_sensitive=True),
                expression_evaluator(fields, must, case_sensitive=True),
            )
        return self._partitions[spec_id]

    def _decides(self, field: PartitionField, fields: Schema) -> bool:
        """Whether a partition field can decide a predicate: not where its column was dropped since."""
        known = field.source_id in self._schema._lazy_id_to_field  # noqa: SLF001 - find_field raises instead
        return known and not isinstance(fields.find_type(field.field_id), DoubleType)


_ORDERED = (IntegerType, LongType, DateType, TimestampType, TimestamptzType, DecimalType, StringType)
"""Types whose bounds and values have one order."""


@dataclass(frozen=True, eq=False)
class SoughtValues:
    """Values of some columns, by which files are left out; they are put in order once for all plans of a write."""

    of: Mapping[str, pa.Array]
    _ordered: dict[str, _Ordered] = field(default_factory=dict, repr=False)

    def holding(self, tasks: Sequence[FileScanTask], metadata: TableMetadata) -> list[FileScanTask]:
        """The files in which each of these columns may have one of its values, by the least and the greatest that a file has.

        Values that lie far apart leave out the files between them.
        """
        left = list(tasks)
        for name, some in self.of.items():
            column = metadata.schema().find_field(name)
            kind = column.field_type
            if not isinstance(kind, _ORDERED):
                continue
            if name not in self._ordered:
                self._ordered[name] = _Ordered(some.take(pc.array_sort_indices(some)))
            known = self._ordered[name].as_bounds_of(kind)
            left = [task for task in left if _holds_any(task.file, column.field_id, kind, known)]
        return left


@dataclass(frozen=True, eq=False)
class _Ordered(Sequence[Any]):
    """Values in their order, which is that of Python too; few of them are looked at."""

    values: pa.Array

    def as_bounds_of(self, kind: object) -> _Ordered:
        """As PyIceberg decodes bounds: dates are days, times are microseconds."""
        if isinstance(kind, DateType):
            return _Ordered(self.values.cast(pa.int32()))
        if isinstance(kind, TimestampType | TimestamptzType):
            return _Ordered(self.values.cast(pa.int64()))
        return self

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, place: Any) -> Any:
        return self.values[place].as_py()


def _holds_any(file: DataFile, field_id: int, kind: PrimitiveType, known: Sequence[Any]) -> bool:
    """Whether one of these values, in their order, lies within a file's bounds."""
    low, high = (bound_of(file, field_id, kind, upper=upper) for upper in (False, True))
    first = 0 if low is None else bisect_left(known, low)
    return first < len(known) and (high is None or known[first] <= high)
