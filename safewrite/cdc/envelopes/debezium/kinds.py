"""Debezium's events, in JSON, Avro and Protobuf."""

from __future__ import annotations

from functools import partial

from safewrite.cdc.connect.avro import Avro
from safewrite.cdc.connect.converters import JsonConverter, RegistryConverter
from safewrite.cdc.connect.inference import rows_alike
from safewrite.cdc.connect.placeholder import UNAVAILABLE_TEXT, Placeholder
from safewrite.cdc.connect.protobuf import Protobuf
from safewrite.cdc.envelopes.debezium.event_columns import TABLES
from safewrite.cdc.envelopes.debezium.events import Debezium
from safewrite.cdc.envelopes.envelope import EnvelopeKind, EnvelopeSettings
from safewrite.cdc.records.change_set import AFTER, BEFORE


def _in_json(settings: EnvelopeSettings) -> Debezium:
    return Debezium(
        JsonConverter(rows_alike(AFTER, BEFORE), TABLES),
        Placeholder(settings.placeholder or UNAVAILABLE_TEXT),
    )


def _of_registry(form: type[Avro | Protobuf], settings: EnvelopeSettings) -> Debezium:
    placeholder = Placeholder(settings.placeholder or UNAVAILABLE_TEXT)
    return Debezium(RegistryConverter(form, settings.schema_of), placeholder)


KINDS = {
    "debezium-json": EnvelopeKind(
        _in_json, frozenset({"unavailable_value_placeholder", "decimal_handling_mode"})
    ),
    "debezium-avro": EnvelopeKind(
        partial(_of_registry, Avro), frozenset({"unavailable_value_placeholder", "registry"})
    ),
    "debezium-protobuf": EnvelopeKind(
        partial(_of_registry, Protobuf),
        frozenset({"unavailable_value_placeholder", "registry"}),
        form="PROTOBUF",
    ),
}
