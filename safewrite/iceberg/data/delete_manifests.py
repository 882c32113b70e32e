"""Writes manifests of delete files: PyIceberg (0.12.0) writes those of data files alone."""

from __future__ import annotations

from pyiceberg.manifest import ManifestContent, ManifestWriterV2

from safewrite.iceberg.data.manifests_v3 import ManifestWriterV3


class DeleteManifestWriterV2(ManifestWriterV2):
    """PyIceberg's writer of manifests, of delete files."""

    def content(self) -> ManifestContent:
        return ManifestContent.DELETES

    @property
    def _meta(self) -> dict[str, str]:
        return {**super()._meta, "content": "deletes"}


class DeleteManifestWriterV3(ManifestWriterV3):
    """As :class:`ManifestWriterV3`, of delete files."""

    contents = ManifestContent.DELETES
