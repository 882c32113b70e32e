"""Tells what columns are called now, where a change log names them as they were called before."""

from __future__ import annotations

from typing import TYPE_CHECKING

from safewrite.changes.meaning.reading import renamed
from safewrite.iceberg.metadata import table_of

if TYPE_CHECKING:
    from safewrite.changes.meaning.spec import Spec
    from safewrite.protocol.iceberg.head import TableVersion


def check_names(spec: Spec, head: TableVersion) -> None:
    """Refuse names that columns of the table had in an earlier schema.

    Raises:
        InvalidInputError: a column was renamed; what it is called now is told.
    """
    metadata = table_of(head).metadata
    now = {column.field_id: column.name for column in metadata.schema().fields}
    for what, names in (
        ("keys", spec.keys),
        ("sequence_by", spec.sequence_by),
        ("columns", spec.columns or ()),
    ):
        for name in set(names) - set(now.values()):
            once = {one.field_id for schema in metadata.schemas for one in schema.fields if one.name == name}
            found = [now[number] for number in once if number in now]
            if len(found) == 1:
                raise renamed(what, name, found[0])
