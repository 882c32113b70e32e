"""Tells which records of a batch have one schema, and reads their payloads as columns: of JSON, Avro and Protobuf."""

from __future__ import annotations

import struct
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json

from safewrite.cdc.connect.avro import Avro
from safewrite.cdc.connect.columns import UnsuitedError, flags
from safewrite.cdc.connect.inference import Inference, Kinds, Tables, of_key
from safewrite.cdc.connect.json import ConnectValue, JsonValues
from safewrite.cdc.connect.known_schemas import KnownSchema, SchemaId, SchemaOf
from safewrite.cdc.connect.logical_types.plain import IN_AVRO, IN_JSON, Carried
from safewrite.cdc.connect.protobuf import Protobuf
from safewrite.cdc.records.change import UndecodableError
from safewrite.cdc.records.prefixes import WITH_SCHEMA, Prefix, Prefixes
from safewrite.cdc.records.records import KafkaRecords

_STRANGE_MAX = 16
_SCHEMAS_MAX = 256
UNSUITED = (
    UnsuitedError, UndecodableError, pa.ArrowException, ValueError, TypeError, KeyError, AttributeError, IndexError,
    ArithmeticError, RecursionError, EOFError, struct.error,
)  # fmt: skip
"""Whatever is wrong with records here, they are read one by one, which tells what it is."""


class SchemaGroup(Protocol):
    """Keys or values of one schema."""

    @property
    def name(self) -> Hashable:
        """What tells the schema from all others of its form."""

    @property
    def schema(self) -> Mapping[str, Any]:
        """The schema, as Connect has it."""

    @property
    def is_inferred(self) -> bool:
        """Whether the schema is made of values, and is that of no source: types of columns are those of their values."""

    def payloads(self, data: pa.Array) -> tuple[Any, Any]:
        """The payloads, and which of them can be read as columns, as far as is known by then."""


Grouped = tuple[Sequence[SchemaGroup], Any]
"""Groups, and the number of that of each record; -1 where none is known."""


Of = Literal["key", "value"]


class Converter(Protocol):
    """How keys and values are written."""

    carried: Carried
    """How values of Connect's plain types come."""
    prefixes: tuple[Prefixes, Prefixes]
    """What was met before payloads of keys and of values."""

    def begin(self) -> None:
        """A batch begins."""

    def part(self, data: bytes | None, of: Of) -> ConnectValue | None:
        """A decoded key or value; None where there is none.

        Raises:
            UndecodableError: the bytes cannot be read.
            StorageError: the schema registry is away.
        """

    def groups(self, records: KafkaRecords, name: Of, fewest: int) -> Grouped:
        """The schemas of ``key`` or ``value``.

        Args:
            fewest: fewer records of one schema are not worth a look.
        """

    def parsed(self, payloads: Any, schema: pa.Schema) -> pa.StructArray:
        """Payloads as structs of these fields.

        Raises:
            any of ``UNSUITED``: one of them does not fit.
        """


# --- JSON -----------------------------------------------------------------------------------------------
def objects_of(payloads: Any, schema: pa.Schema) -> pa.StructArray:
    """Objects of JSON, one for each payload, with these fields and no others.

    Fields that are not known are an error, and not inferred: of a value that is nested too deeply Arrow would make
    a type that ends the process.
    """
    if not len(schema):
        raise UnsuitedError("no fields")
    lines = pc.binary_join_element_wise(payloads, b"", b"\n")
    offsets = np.frombuffer(lines.buffers()[1], "int32")
    start, end = int(offsets[lines.offset]), int(offsets[lines.offset + len(lines)])
    table = pyarrow.json.read_json(
        pa.BufferReader(lines.buffers()[2].slice(start, end - start)),
        read_options=pyarrow.json.ReadOptions(use_threads=False, block_size=end - start + 1),
        parse_options=pyarrow.json.ParseOptions(
            explicit_schema=schema, newlines_in_values=False, unexpected_field_behavior="error"
        ),
    )
    if table.num_rows != len(payloads) or table.schema != schema:
        raise UnsuitedError("other than one object in a payload")
    table.validate(full=True)  # texts are UTF-8
    return table.to_struct_array().combine_chunks()


class JsonConverter:
    """Connect's JSON converter, with schemas and without.

    Args:
        kinds: the kinds of an envelope, by those of samples.
        pattern: where a value names its table (``Tables``).
    """

    carried = IN_JSON

    def __init__(self, kinds: Callable[[Kinds], Kinds], pattern: str) -> None:
        self.prefixes = Prefixes(), Prefixes()
        self._known = dict(zip(("key", "value"), self.prefixes, strict=True))
        self._parts = {name: JsonValues(known) for name, known in self._known.items()}
        tables = Tables(pattern)
        self._inference = {
            "key": Inference(of_key, tables, is_whole=True),
            "value": Inference(kinds, tables, is_whole=False),
        }

    def begin(self) -> None:
        """Prefixes and schemas that were met are kept."""

    def part(self, data: bytes | None, of: Of) -> ConnectValue | None:
        return self._parts[of].part(data)

    def groups(self, records: KafkaRecords, name: Of, fewest: int) -> Grouped:
        return _with_inferred(self._inference[name], records, name, fewest, self._with_schema(records, name))

    def _with_schema(self, records: KafkaRecords, name: str) -> tuple[list[SchemaGroup], Any]:
        """The groups of records that have their schema around them."""
        data, number, known = (
            records.data.column(name),
            records.data.column(f"{name}_prefix"),
            self._known[name],
        )
        groups, found = list[SchemaGroup](), np.full(len(records), -1)
        for one in pc.unique(number).to_pylist():
            if one is not None and (prefix := known.of(records.prefixes[one])) is not None:
                found[flags(pc.equal(number, one))] = len(groups)
                groups.append(_OfPrefix(prefix, 0))
        whole = flags(pc.and_(data.is_valid(), number.is_null()))
        places, rest = np.flatnonzero(whole), data.filter(pa.array(whole))
        for prefix in _prefixes_of(rest, known):
            has = flags(pc.starts_with(rest, prefix.data)) & (found[places] < 0)
            if has.any():
                found[places[has]] = len(groups)
                groups.append(_OfPrefix(prefix, len(prefix.data)))
        return groups, found

    def parsed(self, payloads: Any, schema: pa.Schema) -> pa.StructArray:
        return objects_of(payloads, schema)


class BareConverter(JsonConverter):
    """JSON that has no schemas, and keys that say less than the rows."""

    def groups(self, records: KafkaRecords, name: Of, fewest: int) -> Grouped:
        if name == "key":
            return [], np.zeros(len(records), "int64")  # as if there were none
        return _with_inferred(self._inference[name], records, name, fewest, ([], np.full(len(records), -1)))


@dataclass(frozen=True, slots=True)
class _OfPrefix:
    """What has one prefix, and how much of it is before the payloads."""

    prefix: Prefix
    length: int
    is_inferred: ClassVar[bool] = False

    @property
    def name(self) -> bytes:
        return self.prefix.data

    @property
    def schema(self) -> Mapping[str, Any]:
        return self.prefix.schema

    def payloads(self, data: pa.Array) -> tuple[Any, Any]:
        """The payloads, and which of them are objects of JSON as far as their ends tell."""
        found = pc.binary_slice(data, self.length, -1)
        ends = (pc.ends_with(data, b"}"), pc.starts_with(found, b"{"), pc.ends_with(found, b"}"))
        return found, np.logical_and.reduce([one.to_numpy(zero_copy_only=False) for one in ends])


def _with_inferred(
    inference: Inference, records: KafkaRecords, name: str, fewest: int, known: tuple[list[SchemaGroup], Any]
) -> Grouped:
    """The groups that are known, and those of records without a schema."""
    groups, found = known
    for group, places in inference.inferred(records, name, _bare(records, name, found), fewest):
        found[places] = len(groups)
        groups.append(group)
    return groups, found


def _bare(records: KafkaRecords, name: str, found: Any) -> Any:
    """The places of records that have no schema around them, as far as their first bytes tell."""
    data = records.data.column(name)
    begins = pc.and_not(pc.starts_with(data, b"{"), pc.starts_with(data, WITH_SCHEMA))
    whole = pc.is_null(records.data.column(f"{name}_prefix"))
    return np.flatnonzero(flags(pc.and_(begins, whole)) & (found < 0))


def _prefixes_of(values: Any, known: Prefixes) -> Iterator[Prefix]:
    """Those prefixes that some of the values may have; what is new is learned."""
    left = np.ones(len(values), bool)
    for prefix in known:
        if not left.any():
            return
        left &= ~flags(pc.starts_with(values, prefix.data))
        yield prefix
    for _ in range(_STRANGE_MAX):
        if not left.any():
            return
        first = int(np.argmax(left))
        left[first] = False
        try:
            learned = known.learn(values[first].as_py())
        except (ValueError, RecursionError):
            continue
        if learned is not None:
            left &= ~flags(pc.starts_with(values, learned.data))
            yield learned


# --- Avro and Protobuf ----------------------------------------------------------------------------------
class RegistryConverter:
    """Bytes behind the header of a schema registry.

    Args:
        form: the form of what is behind it.
        schema_of: the registry; None where none is configured.
    """

    carried = IN_AVRO

    def __init__(self, form: type[Avro | Protobuf], schema_of: SchemaOf | None) -> None:
        self.prefixes = Prefixes(), Prefixes()
        self._form = form(schema_of or _no_registry)

    def begin(self) -> None:
        self._form.begin()

    def part(self, data: bytes | None, of: Of) -> ConnectValue | None:
        if data is None:
            return None
        known = self._form.schema(data)
        return ConnectValue(known.payload(data), known.connect, f"registry:{known.number}", known.own_name)

    def groups(self, records: KafkaRecords, name: Of, fewest: int) -> Grouped:
        """The schemas of ids.

        Raises:
            StorageError: the registry is away.
        """
        heads = self._form.heads(records.data.column(name))
        groups, found = list[_OfId](), np.full(len(records), -1)
        counted = pc.value_counts(heads).to_pylist()
        counted.sort(key=lambda one: -one["counts"])
        for one in counted[:_SCHEMAS_MAX]:
            head = one["values"]
            try:
                known = None if head is None else self._form.schema(head)
            except UndecodableError:
                continue
            if known is not None:
                found[flags(pc.equal(heads, head))] = len(groups)
                groups.append(_OfId(known))
        return groups, found

    def parsed(self, payloads: Any, schema: pa.Schema) -> pa.StructArray:
        return pa.array(payloads, pa.struct(list(schema)))


@dataclass(frozen=True, slots=True)
class _OfId:
    """What has one schema id."""

    known: KnownSchema
    is_inferred: ClassVar[bool] = False

    @property
    def name(self) -> SchemaId:
        return self.known.number

    @property
    def schema(self) -> Mapping[str, Any]:
        return self.known.connect

    def payloads(self, data: pa.Array) -> tuple[Any, Any]:
        """The payloads, and which of them fit the schema."""
        found, fit, payload = list[Any](), np.ones(len(data), bool), self.known.payload
        for place, one in enumerate(data.to_pylist()):
            try:
                found.append(payload(one))
            except UNSUITED:
                found.append(None)
                fit[place] = False
        return found, fit


def _no_registry(number: SchemaId) -> str:
    raise UndecodableError("no schema registry is configured")
