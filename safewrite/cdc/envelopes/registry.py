"""Lists the envelopes that a configuration may name: one line for the folder of each source."""

from __future__ import annotations

from collections.abc import Mapping

from safewrite.cdc.envelopes.debezium import kinds as debezium
from safewrite.cdc.envelopes.dms import kinds as dms
from safewrite.cdc.envelopes.envelope import EnvelopeKind
from safewrite.cdc.envelopes.events import kinds as events
from safewrite.cdc.envelopes.maxwell import kinds as maxwell
from safewrite.cdc.envelopes.unwrapped import kinds as unwrapped

KINDS: Mapping[str, EnvelopeKind] = {
    **debezium.KINDS,
    **dms.KINDS,
    **events.KINDS,
    **maxwell.KINDS,
    **unwrapped.KINDS,
}
