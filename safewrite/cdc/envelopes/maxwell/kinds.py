"""Records of Maxwell, in JSON."""

from __future__ import annotations

from safewrite.cdc.envelopes.envelope import EnvelopeKind
from safewrite.cdc.envelopes.maxwell.events import Maxwell

KINDS = {"maxwell-json": EnvelopeKind(lambda _: Maxwell(), has_keys=False, decimals="string")}
