"""Records of AWS DMS, in JSON."""

from __future__ import annotations

from safewrite.cdc.envelopes.dms.events import BEFORE_IMAGE, Dms
from safewrite.cdc.envelopes.envelope import EnvelopeKind, EnvelopeSettings


def _in_json(settings: EnvelopeSettings) -> Dms:
    return Dms(before_image=settings.before_image or BEFORE_IMAGE)


KINDS = {
    "dms-json": EnvelopeKind(_in_json, frozenset({"before_image_field"}), has_keys=False, decimals="string")
}
