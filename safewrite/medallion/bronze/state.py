"""Remembers from run to run which files a table has, so that a run without news asks little.

It is a copy of what the tables say, and worth nothing without them: what was remembered of another bronze table, or of
a version that bronze no longer has, is thrown away and read from bronze itself.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

from safewrite.medallion.files.file_versions import Content, Contents
from safewrite.medallion.files.storage import RawFile, Storage

FORMAT = 2


@dataclass(frozen=True, slots=True)
class KnownFile:
    """A file that a table has: its rows are in bronze or in quarantine; ``changed_ms`` is the time of the file then."""

    mark: str
    rows: int
    quarantined: int
    epoch: int = 1
    changed_ms: int = 0


class Order(NamedTuple):
    """What orders the changes of an epoch, and up to where those go that were landed."""

    by: str
    highest: str
    """A whole number; JSON has none of 35 digits that every reader reads."""


@dataclass
class BronzeState:
    """What is known of one table.

    ``files`` has each path, and for each content that it had its tag: what bronze has at ``bronze_head``, of which
    ``bronze_stamp`` tells whether it is still that commit.  ``heads`` marks the states of bronze and silver
    that were last seen with nothing left to do.  ``epoch`` is the highest of which something was landed, and ``orders`` says
    of each epoch how its changes are ordered.
    """

    bronze_id: str = ""
    bronze_head: int = -1
    files: dict[str, dict[str, KnownFile]] = field(default_factory=dict)
    heads: dict[str, Any] = field(default_factory=dict)
    epoch: int = 1
    orders: dict[str, Order] = field(default_factory=dict)
    bronze_stamp: int | None = None
    truncated: int = 0
    """The last epoch of which bronze has a truncate of the source."""

    def __post_init__(self) -> None:
        self.orders = {epoch: Order(*order) for epoch, order in self.orders.items()}
        self.epoch = max([self.epoch, *(one.epoch for tags in self.files.values() for one in tags.values())])

    def knows(self, file: RawFile, *, is_load: bool = False) -> bool:
        """Whether a file is there as it is now listed; one of a full load that was written again since may be of another load."""
        return any(
            known.mark == file.mark and not (is_load and known.rows and known.changed_ms < file.changed_ms)
            for known in self.files.get(file.path, {}).values()
        )

    def contents(self, path: str) -> Contents:
        """The contents of a file that bronze has rows of."""
        files = self.files.get(path, {})
        return {tag: Content(known.epoch, known.changed_ms) for tag, known in files.items() if known.rows}

    def note(self, path: str, tag: str, known: KnownFile) -> None:
        self.files.setdefault(path, {})[tag] = known
        self.epoch = max(self.epoch, known.epoch)

    def note_order(self, epoch: int, order: Order) -> None:
        """Of an epoch the highest changes count."""
        known = self.orders.get(str(epoch))
        if known is None or int(known.highest) < int(order.highest):
            self.orders[str(epoch)] = order

    def forget_all_but(self, paths: set[str]) -> None:
        """Files that were taken away are of no use: were they to come again, bronze would know them."""
        self.files = {path: tags for path, tags in self.files.items() if path in paths}


def read_state(storage: Storage, name: str) -> BronzeState | None:
    """What was remembered of a table; None if that is nothing that can be used.  Raises StorageError."""
    content = storage.get(_name(name))
    try:
        found = json.loads(content) if content is not None else None
        if not isinstance(found, dict) or found.pop("format", None) != FORMAT:
            return None
        files = {
            path: {tag: KnownFile(**known) for tag, known in tags.items()}
            for path, tags in found.pop("files").items()
        }
        return BronzeState(files=files, **found)
    except (ValueError, TypeError, KeyError, AttributeError):
        return None


def write_state(storage: Storage, name: str, state: BronzeState) -> None:
    """Remember a table.  Raises StorageError."""
    storage.put(_name(name), json.dumps({"format": FORMAT, **asdict(state)}, separators=(",", ":")).encode())


def _name(table: str) -> str:
    return f"{table}.json"
