"""Debezium's events, in JSON and in Avro."""

from __future__ import annotations

from safewrite.cdc.connect.converters import AvroConverter, JsonConverter
from safewrite.cdc.connect.placeholder import UNAVAILABLE_TEXT, Placeholder
from safewrite.cdc.envelopes.debezium.event_columns import TABLES, kinds_of_event
from safewrite.cdc.envelopes.debezium.events import Debezium
from safewrite.cdc.envelopes.envelope import Kind, Settings


def _in_json(settings: Settings) -> Debezium:
    return Debezium(
        JsonConverter(kinds_of_event, TABLES), Placeholder(settings.placeholder or UNAVAILABLE_TEXT)
    )


def _in_avro(settings: Settings) -> Debezium:
    return Debezium(AvroConverter(settings.schema_of), Placeholder(settings.placeholder or UNAVAILABLE_TEXT))


KINDS = {
    "debezium-json": Kind(_in_json, frozenset({"unavailable_value_placeholder", "decimal_handling_mode"})),
    "debezium-avro": Kind(_in_avro, frozenset({"unavailable_value_placeholder", "registry"})),
}
