"""Lists the envelopes that a configuration may name: one line for the folder of each source."""

from __future__ import annotations

from collections.abc import Mapping

from safewrite.cdc.envelopes import debezium, dms, events, maxwell, unwrapped
from safewrite.cdc.envelopes.envelope import EnvelopeKind

KINDS: Mapping[str, EnvelopeKind] = {
    **debezium.KINDS,
    **dms.KINDS,
    **events.KINDS,
    **maxwell.KINDS,
    **unwrapped.KINDS,
}
