"""Records of any shape: each is a row of the table of its topic, and none changes another."""

from __future__ import annotations

from safewrite.cdc.envelopes.envelope import EnvelopeKind
from safewrite.cdc.envelopes.events.records import EventRecords, KeylessAvro, KeylessJson

KINDS = {
    "events-json": EnvelopeKind(
        lambda _: EventRecords(KeylessJson()), has_keys=False, decimals="string", is_events=True
    ),
    "events-avro": EnvelopeKind(
        lambda settings: EventRecords(KeylessAvro(settings.schema_of)),
        frozenset({"registry"}),
        has_keys=False,
        is_events=True,
    ),
}
