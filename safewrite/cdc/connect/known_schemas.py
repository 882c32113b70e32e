"""Keeps the schemas of a registry: each is asked for once, and one that is not known once in a batch."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import Any, Generic, Protocol, TypeVar

from safewrite.cdc.records.change import UndecodableError

SchemaId = int | str
"""Of Confluent's registry a number, of AWS Glue's the id of a version as a text."""
SchemaOf = Callable[[SchemaId], str]
"""The text of the schema with this id.  Raises UndecodableError where the registry does not know it."""
_K = TypeVar("_K", bound=Hashable)
_T = TypeVar("_T")


class KnownSchema(Protocol):
    """A schema of the registry."""

    @property
    def number(self) -> SchemaId:
        """What tells it from all others."""

    @property
    def connect(self) -> Mapping[str, Any]:
        """The schema, as Connect has it."""

    @property
    def own_name(self) -> str | None:
        """Its name, where it has none of Connect's."""

    def payload(self, data: bytes) -> Any:
        """What bytes in the wire format hold, behind their header.

        Raises:
            UndecodableError: they do not fit the schema.
        """


class KnownSchemas(Generic[_K, _T]):
    """Schemas by what names them."""

    def __init__(self, ask: Callable[[_K], _T]) -> None:
        self._ask = ask
        self._known: dict[_K, _T] = {}
        self._unknown: dict[_K, str] = {}
        """What is wrong with those of this batch: a table's records may all have one that the registry does not have."""

    def begin(self) -> None:
        """A batch begins: what was not known is asked for again."""
        self._unknown.clear()

    def of(self, name: _K) -> _T:
        """The schema.

        Raises:
            UndecodableError: the registry has no such schema.
        """
        if name in self._known:
            return self._known[name]
        if name in self._unknown:
            raise UndecodableError(self._unknown[name])
        try:
            self._known[name] = self._ask(name)
        except UndecodableError as error:
            self._unknown[name] = str(error)
            raise
        return self._known[name]
