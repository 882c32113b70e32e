"""Records of Maxwell, in JSON."""

from __future__ import annotations

from safewrite.cdc.envelopes.envelope import Kind
from safewrite.cdc.envelopes.maxwell.events import Maxwell

KINDS = {"maxwell-json": Kind(lambda _: Maxwell(), has_keys=False, decimals="string")}
