"""Looks for a table that another one's folder holds: engines that clean up the outer one's folder take the inner one's files."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from urllib.parse import urlsplit

from safewrite.protocol.effects import List, Ok
from safewrite.stores.world import Performer

ABOVE_MAX = 8
"""So many folders above a table are looked at, the nearest first."""
_METADATA = ".metadata.json"


def above(world: Performer, location: str) -> Iterator[str]:
    """Locations above one where an Iceberg table has its metadata; a store that lists no folder there is asked no further."""
    for folder in islice(_folders(location), ABOVE_MAX):
        metadata = f"{folder}/metadata/"
        answer = world.perform(List(metadata, limit=1000, name="doctor.look"))
        if not isinstance(answer, Ok) or not isinstance(answer.value, tuple):
            return
        names = (one.path.removeprefix(metadata) for one in answer.value)
        if any(
            name.endswith(_METADATA) and "/" not in name for name in names
        ):  # another folder may be called so
            yield folder


def _folders(location: str) -> Iterator[str]:
    root = len(location) - len(urlsplit(location).path)
    folder = location.rstrip("/")
    while (folder := folder.rpartition("/")[0]) and len(folder) >= max(root, 1):
        yield folder
