"""Picks the manifests that a commit merges, as ``commit.manifest-merge`` asks (Iceberg's table properties).

Every commit adds a manifest, and every plan opens all of them: without merging a table of many small commits gets slower
with each.  Java's commits merge by the same properties, with the same defaults.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyiceberg.manifest import ManifestFile

ENABLED = "commit.manifest-merge.enabled"
COUNT_MIN = "commit.manifest.min-count-to-merge"
TARGET_BYTES = "commit.manifest.target-size-bytes"
_DEFAULTS = {COUNT_MIN: 100, TARGET_BYTES: 8 * 2**20}


def to_merge(manifests: Sequence[ManifestFile], properties: Mapping[str, str]) -> list[list[ManifestFile]]:
    """Manifests of data files that become one each: those of one partitioning, up to the target size together.

    Nothing where there are fewer than the count that merging begins with.
    """
    if properties.get(ENABLED, "true").strip().lower() == "false":
        return []
    count_min, target_bytes = _number(properties, COUNT_MIN), _number(properties, TARGET_BYTES)
    found: list[list[ManifestFile]] = []
    for spec_id in sorted({one.partition_spec_id for one in manifests}):
        mine = [one for one in manifests if one.partition_spec_id == spec_id]
        if len(mine) >= count_min:
            found += _bins(mine, target_bytes)
    return [group for group in found if len(group) > 1]


def _bins(manifests: Sequence[ManifestFile], target_bytes: int) -> list[list[ManifestFile]]:
    """Neighbours together, so that files that came at one time stay together."""
    found: list[list[ManifestFile]] = [[]]
    filled = 0
    for one in manifests:
        if found[-1] and filled + one.manifest_length > target_bytes:
            found.append([])
            filled = 0
        found[-1].append(one)
        filled += one.manifest_length
    return found


def _number(properties: Mapping[str, str], name: str) -> int:
    """A property as it is; the default where it is no number above 0."""
    text = properties.get(name, "").strip()
    return int(text) if text.isascii() and text.isdigit() and int(text) > 0 else _DEFAULTS[name]
