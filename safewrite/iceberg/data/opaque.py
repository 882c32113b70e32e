"""Lets PyIceberg (0.12.0) load tables with columns of types that it does not know (``variant``), or with statistics of other kinds.

PyIceberg refuses the whole table for one such column or one such kind (Presto's, ``ndv``), although the Puffin specification names no
closed list of these.  It spells ``geometry(srid:3857)`` with quotes, which no other engine reads, so these types keep their text.  What it
does with columns for its own callers stays as it is.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from pydantic import model_serializer
from pyiceberg.types import IcebergType, ListType, MapType, PrimitiveType

_taken: ContextVar[bool] = ContextVar("opaque types are taken", default=False)
_known: Any = IcebergType.handle_primitive_type
_INNER = ("element", "key", "value")
_SPELLED_OTHERWISE = ("geometry", "geography")


class OpaqueType(PrimitiveType):
    """A type that is known by its name alone; nothing reads or writes its values."""

    root: tuple[str]  # PyIceberg would take a text for the name of one of its own types

    def __init__(self, name: str) -> None:
        super().__init__((name,))

    @model_serializer
    def ser_model(self) -> str:
        """The type as metadata has it."""
        return self.root[0]

    def __str__(self) -> str:
        return self.root[0]

    def __hash__(self) -> int:
        return hash(self.root)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, OpaqueType) and self.root == other.root

    def __getnewargs__(self) -> tuple[str]:
        """Pickle the type by its name."""
        return self.root


def _handled(value: Any, handler: Any) -> Any:
    if not _taken.get():
        return _known(value, handler)
    if isinstance(value, str) and value.startswith(_SPELLED_OTHERWISE):
        return OpaqueType(value)
    try:
        return _known(value, handler)
    except ValueError:
        if isinstance(value, str):
            return OpaqueType(value)
        raise


IcebergType.handle_primitive_type = staticmethod(_handled)  # type: ignore[method-assign, assignment]


def _takes(kind: type[ListType | MapType]) -> None:
    """Take these types inside of a list or a map, too, whose texts PyIceberg's models hand to nobody."""
    begun = kind.__init__

    def begin(self: Any, *args: Any, **data: Any) -> None:
        if _taken.get():
            texts = {name: one for name, one in data.items() if name in _INNER and isinstance(one, str)}
            data |= {name: _handled(one, None) for name, one in texts.items()}
        begun(self, *args, **data)

    kind.__init__ = begin  # type: ignore[method-assign]


_takes(ListType)
_takes(MapType)


@contextmanager
def opaque_types() -> Iterator[None]:
    """Take columns of any type, in this thread, while a table's metadata is loaded."""
    before = _taken.set(True)
    try:
        yield
    finally:
        _taken.reset(before)


def any_statistics() -> None:
    """Take statistics of any kind from now on, as text that is written again with the metadata: nothing here reads them."""
    from pyiceberg.catalog.rest import TableResponse
    from pyiceberg.table import CommitTableResponse
    from pyiceberg.table import metadata as models
    from pyiceberg.table.statistics import BlobMetadata, StatisticsFile

    BlobMetadata.model_fields["type"].annotation = str
    for model in (
        BlobMetadata, StatisticsFile, models.TableMetadataV1, models.TableMetadataV2, models.TableMetadataV3, models.TableMetadataWrapper,
        TableResponse, CommitTableResponse,
    ):  # fmt: skip
        model.model_rebuild(force=True)
