"""Debezium's events after ``ExtractNewRecordState``: rows, with what is known of their change in columns or headers."""

from __future__ import annotations

from safewrite.cdc.connect.avro import Avro
from safewrite.cdc.connect.converters import JsonConverter, RegistryConverter
from safewrite.cdc.connect.placeholder import UNAVAILABLE_TEXT, Placeholder
from safewrite.cdc.envelopes.envelope import EnvelopeKind, EnvelopeSettings
from safewrite.cdc.envelopes.unwrapped.event_columns import TABLES
from safewrite.cdc.envelopes.unwrapped.events import Unwrapped


def _in_json(settings: EnvelopeSettings) -> Unwrapped:
    converter = JsonConverter(lambda kinds: kinds, TABLES)
    return Unwrapped(converter, Placeholder(settings.placeholder or UNAVAILABLE_TEXT))


def _in_avro(settings: EnvelopeSettings) -> Unwrapped:
    return Unwrapped(
        RegistryConverter(Avro, settings.schema_of), Placeholder(settings.placeholder or UNAVAILABLE_TEXT)
    )


KINDS = {
    "debezium-unwrapped-json": EnvelopeKind(
        _in_json, frozenset({"unavailable_value_placeholder", "decimal_handling_mode"})
    ),
    "debezium-unwrapped-avro": EnvelopeKind(
        _in_avro, frozenset({"unavailable_value_placeholder", "registry"})
    ),
}
