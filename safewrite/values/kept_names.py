"""Names of columns that a table format keeps for itself: engines do not tell such a column from their own.

Case does not count, for Spark's does not.  Fields inside of columns may have any name.
Sources: Iceberg's table specification, "Reserved Field IDs", without the fields of delete files (``pos`` and such), which stand in
files of their own; Delta's PROTOCOL.md, "Change Data Files", and what Delta for Spark (4.4) reads rows by.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

ICEBERG = frozenset(
    {
        "_file", "_pos", "_deleted", "_spec_id", "_partition",  # of each scan
        "_row_id", "_last_updated_sequence_number",  # row lineage
        "_change_type", "_change_ordinal", "_commit_snapshot_id",  # views of changes
    }
)  # fmt: skip
DELTA_FEED = frozenset({"_change_type", "_commit_version", "_commit_timestamp", "__is_cdc"})
"""Where a Delta table has a change data feed."""
DELTA_VECTORS = frozenset({"_metadata", "__delta_internal_row_index", "__delta_internal_is_row_deleted"})
"""Where it has deletion vectors."""


DELTA_IDS = (
    "delta.rowTracking.materializedRowIdColumnName",
    "delta.rowTracking.materializedRowCommitVersionColumnName",
)
"""Properties that say what files of a Delta table call the columns in which rows that were written again keep their ids and versions."""


def of_table(table_format: str, properties: Mapping[str, str]) -> frozenset[str]:
    """The names that a format keeps in a table with such properties."""
    if table_format == "iceberg":
        return ICEBERG
    features = {"delta.enableChangeDataFeed": DELTA_FEED, "delta.enableDeletionVectors": DELTA_VECTORS}
    is_on = (name for name in features if properties.get(name, "").strip().lower() == "true")
    ids = frozenset(properties[name].lower() for name in DELTA_IDS if properties.get(name))
    return ids.union(*(features[name] for name in is_on))


def among(names: Iterable[str], kept: frozenset[str]) -> list[str]:
    """Those of some names that are kept."""
    return [name for name in names if name.lower() in kept]
