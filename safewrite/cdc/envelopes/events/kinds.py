"""Records of any shape: each is a row of the table of its topic, or of one that a field names, and none changes another."""

from __future__ import annotations

from safewrite.cdc.connect.avro import Avro
from safewrite.cdc.connect.protobuf import Protobuf
from safewrite.cdc.envelopes.envelope import EnvelopeKind
from safewrite.cdc.envelopes.events.records import EventRecords, KeylessJson, KeylessRegistry

KINDS = {
    "events-json": EnvelopeKind(
        lambda settings: EventRecords(KeylessJson(settings.route_field), settings.route_field),
        frozenset({"route_field"}),
        has_keys=False,
        decimals="string",
        is_events=True,
    ),
    "events-avro": EnvelopeKind(
        lambda settings: EventRecords(KeylessRegistry(Avro, settings.schema_of), settings.route_field),
        frozenset({"registry", "route_field"}),
        has_keys=False,
        is_events=True,
    ),
    "events-protobuf": EnvelopeKind(
        lambda settings: EventRecords(KeylessRegistry(Protobuf, settings.schema_of), settings.route_field),
        frozenset({"registry", "route_field"}),
        has_keys=False,
        form="PROTOBUF",
        is_events=True,
    ),
}
