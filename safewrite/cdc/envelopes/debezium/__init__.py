"""Debezium's events, in JSON and in Avro."""

from __future__ import annotations

from safewrite.cdc.connect.converters import AvroConverter, JsonConverter
from safewrite.cdc.connect.inference import rows_alike
from safewrite.cdc.connect.placeholder import UNAVAILABLE_TEXT, Placeholder
from safewrite.cdc.envelopes.debezium.event_columns import TABLES
from safewrite.cdc.envelopes.debezium.events import Debezium
from safewrite.cdc.envelopes.envelope import EnvelopeKind, EnvelopeSettings
from safewrite.cdc.records.change_set import AFTER, BEFORE


def _in_json(settings: EnvelopeSettings) -> Debezium:
    return Debezium(
        JsonConverter(rows_alike(AFTER, BEFORE), TABLES),
        Placeholder(settings.placeholder or UNAVAILABLE_TEXT),
    )


def _in_avro(settings: EnvelopeSettings) -> Debezium:
    return Debezium(AvroConverter(settings.schema_of), Placeholder(settings.placeholder or UNAVAILABLE_TEXT))


KINDS = {
    "debezium-json": EnvelopeKind(
        _in_json, frozenset({"unavailable_value_placeholder", "decimal_handling_mode"})
    ),
    "debezium-avro": EnvelopeKind(_in_avro, frozenset({"unavailable_value_placeholder", "registry"})),
}
