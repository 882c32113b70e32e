"""Guards Glue's client: no table is updated without the version id that Glue compares (C4)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from safewrite.errors import Kind, UnsafeConfigError

_EVENT = "provide-client-params.glue.UpdateTable"


def guard(catalog: Any) -> None:
    """Let a Glue catalog's client refuse updates that would set without comparing; other catalogs pass.

    One argument that PyIceberg hands over is all that makes a commit on Glue a compare-and-set, so it is
    checked on its way out.  May be called again for the same catalog.
    """
    events = getattr(getattr(getattr(catalog, "glue", None), "meta", None), "events", None)
    if events is not None:
        events.register(_EVENT, _require_version, unique_id="safewrite-version-id")


def _require_version(params: Mapping[str, Any], **_: Any) -> None:
    if not params.get("VersionId"):
        raise UnsafeConfigError(
            "Glue's UpdateTable was called without VersionId: it would overwrite other writers' commits without "
            "an error. The request was not sent. Use a version of PyIceberg that safewrite names.",
            kind=Kind.DISHONEST_STORE,
        )
