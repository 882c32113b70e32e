"""Models a catalog as one immutable value: metadata, its history, files, ledger and queue.

Catalogs come in two kinds.  A REST catalog checks what a change requires on the metadata it has when it
applies the change.  SQL catalogs and Glue only compare a metadata location: the client checks before, in a
step of its own, what a change requires.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import repeat
from typing import TYPE_CHECKING, Any, NamedTuple

from safewrite.errors import ConflictError, Kind
from safewrite.iceberg.catalog.commit_request import CommitRequest, RefCommit, holds
from safewrite.iceberg.write.members import CHANGES, FINGERPRINT, KEY, ROWS, WITHDRAWN, summary
from safewrite.protocol.effects import Effect, Exists, Failed, Missing, Ok, Outcome
from safewrite.protocol.iceberg.change import LoadTable, ReadMetadata, SwapTable
from safewrite.protocol.iceberg.head import HELD, TableVersion
from safewrite.protocol.iceberg.numbers import given
from safewrite.protocol.members import MemberWrite
from safewrite.testing.explorer.changes import Change, State
from safewrite.testing.explorer.immutable import Store

if TYPE_CHECKING:
    from pyiceberg.table.update import TableRequirement, TableUpdate

TABLE_ID = "table"
FIRST_SNAPSHOT = 1


@dataclass(frozen=True)
class Items(Mapping[Any, Any]):
    """A mapping that may be part of a state: it can be hashed."""

    pairs: tuple[tuple[Any, Any], ...] = ()

    def __getitem__(self, key: Any) -> Any:
        for name, value in self.pairs:
            if name == key:
                return value
        raise KeyError(key)

    def __iter__(self) -> Iterator[Any]:
        return (name for name, _ in self.pairs)

    def __len__(self) -> int:
        return len(self.pairs)


class Vector(NamedTuple):
    """Where the deletion vector of the one data file is, and how many rows it takes."""

    path: str
    offset: int
    size: int
    rows: int


class CatalogSnapshot(NamedTuple):
    """A snapshot: ``key`` and ``attempt`` say whose it is, of several joined by ``+``; ``path`` is its manifest list."""

    id: int
    parent: int | None = None
    sequence: int = 1
    key: str = ""
    attempt: str = ""
    path: str = ""
    changes: tuple[Change, ...] = ()
    """The changes of one key that it applies, in the order of its keys."""
    makes: State | None = None
    """What they make of the key."""
    withdrawn: str = ""
    """A key of which no later snapshot carries what was offered before this one."""
    first_row: int | None = None
    """The id of its first row; it has a row for each of its keys."""
    marks: tuple[tuple[int, ...], Vector | None] | None = None
    """The rows that it deletes of the one data file, and the vector that this has then."""
    held_s: float = 0.0
    """For how many seconds it asks others to wait."""

    @property
    def rows(self) -> int:
        """How many row ids it takes."""
        return 1 + self.key.count("+")


class Metadata(NamedTuple):
    """One version of the table; ``number`` grows with each and is its location."""

    number: int = 0
    current: int | None = None
    snapshots: tuple[CatalogSnapshot, ...] = ()
    last_sequence: int = 0
    properties: tuple[tuple[str, str], ...] = ()
    side: int | None = None
    """Where another branch is, in models that have one; ``current`` is where the main branch is."""
    next_row: int | None = None
    """The next row id, in models of tables whose rows have ids (format version 3)."""

    @property
    def metadata(self) -> Metadata:
        """Itself, as a table object has its metadata."""
        return self

    @property
    def location(self) -> str:
        """The name of its file."""
        return f"m{self.number}"


@dataclass(frozen=True)
class BranchIs:
    """Requires that a branch is at a snapshot."""

    snapshot_id: int | None
    side: bool = False

    def validate(self, metadata: Metadata) -> None:
        """Raise what PyIceberg's own requirements raise if the branch is elsewhere."""
        from safewrite.iceberg.catalog.safe_catalog import NotLandedError

        if (metadata.side if self.side else metadata.current) != self.snapshot_id:
            raise NotLandedError("Requirement failed: the branch has changed.")


@dataclass(frozen=True)
class AddSnapshot:
    """Adds a snapshot and moves a branch to it."""

    snapshot: CatalogSnapshot
    side: bool = False


@dataclass(frozen=True)
class MoveMain:
    """Moves the main branch to a snapshot that is there."""

    snapshot_id: int


# --- what else may be asked of a catalog -------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class SwapLocation(Effect):
    """Apply a change if the metadata still is at ``location``: ``Ok | Exists``."""

    location: str
    change: CommitRequest | RefCommit


@dataclass(frozen=True, slots=True)
class Expire(Effect):
    """Remove all snapshots but the current one; ``cuts`` parent ids too, as PyIceberg does and Java does not."""

    cuts: bool


@dataclass(frozen=True, slots=True)
class RollBack(Effect):
    """Set the branch to a snapshot that it was at before."""

    snapshot_id: int


@dataclass(frozen=True, slots=True)
class SetProperty(Effect):
    """Change a table property."""

    value: str


class Catalog(NamedTuple):
    """A table, and everything else that outlives a process.

    ``earlier`` are metadata files that can still be read, at most ``kept`` of them.  ``ordered`` says
    that snapshots have sequence numbers, which never go back (format version 2).  ``ever`` are all
    snapshots that the table ever had, as they were added: only the judge looks there.
    """

    metadata: Metadata
    earlier: tuple[Metadata, ...] = ()
    kept: int = 100
    ordered: bool = True
    ever: tuple[CatalogSnapshot, ...] = ()
    store: Store = Store()

    def perform(self, effect: Effect) -> tuple[Outcome, Catalog]:
        """Perform an effect: its outcome, and the catalog afterwards."""
        match effect:
            case LoadTable():
                return Ok(self.head()), self
            case ReadMetadata(location):
                found = [
                    earlier for earlier in (*self.earlier, self.metadata) if earlier.location == location
                ]
                return (Ok(_head(found[0], ())) if found else Missing()), self
            case SwapTable(change):
                assert isinstance(change, CommitRequest | RefCommit)
                return self._apply(change) if holds(change.requirements, self.head()) else (Exists(), self)
            case SwapLocation(location, change):
                there = location == self.metadata.location
                return self._apply(change, by_client=True) if there else (Exists(), self)
            case Expire(cuts):
                return Ok(), self._next(snapshots=self._kept(cuts))
            case RollBack(snapshot_id):
                known = any(one.id == snapshot_id for one in self.metadata.snapshots)
                return (Ok(), self._next(current=snapshot_id)) if known else (Failed(), self)
            case SetProperty(value):
                return Ok(), self._next(properties=(("p", value),))
        outcome, store = self.store.perform(effect)
        return outcome, self if store is self.store else self._replace(store=store)

    def head(self) -> TableVersion:
        """The table version that a look shows."""
        return _head(self.metadata, tuple(earlier.location for earlier in self.earlier))

    def branch(self, *, side: bool = False) -> list[CatalogSnapshot]:
        """The whole history of a branch, newest first, with what was expired since."""
        known = {one.id: one for one in self.ever}
        found: list[CatalogSnapshot] = []
        at = self.metadata.side if side else self.metadata.current
        while at is not None and known[at] not in found:
            found.append(known[at])
            at = known[at].parent
        return found

    def _apply(
        self, change: CommitRequest | RefCommit, *, by_client: bool = False
    ) -> tuple[Outcome, Catalog]:
        """Add a snapshot; every catalog refuses an id that is there, and a sequence number that is no news; a server a row id, too.

        It refuses the latter only if the snapshot has a parent (``TableMetadata.Builder.addSnapshot`` in
        apache/iceberg; PyIceberg, iceberg-rust and Lakekeeper alike).
        """
        (update,) = change.updates
        if isinstance(update, MoveMain):
            return Ok(), self._next(current=update.snapshot_id)
        assert isinstance(update, AddSnapshot)
        added = update.snapshot
        if any(one.id == added.id for one in self.metadata.snapshots):
            return Failed("Snapshot already exists"), self
        if self.ordered and added.parent is not None and added.sequence <= self.metadata.last_sequence:
            return Failed("Cannot add snapshot with an older sequence number"), self
        behind = self.metadata.next_row is not None and (added.first_row or 0) < self.metadata.next_row
        if behind and not by_client:
            return Failed("Cannot add a snapshot whose first row id is behind the table's next one"), self
        after = self._next(
            next_row=None
            if self.metadata.next_row is None
            else max(self.metadata.next_row, (added.first_row or 0) + added.rows),
            **{"side" if update.side else "current": added.id},
            snapshots=tuple(sorted((*self.metadata.snapshots, added))),
            last_sequence=max(added.sequence, self.metadata.last_sequence),
        )
        return Ok(), after._replace(ever=(*self.ever, added))

    def _next(self, **changed: Any) -> Catalog:
        metadata = self.metadata._replace(number=self.metadata.number + 1, **changed)
        earlier = (*self.earlier, self.metadata)[-self.kept :]
        return self._replace(metadata=metadata, earlier=earlier)

    def _kept(self, cuts: bool) -> tuple[CatalogSnapshot, ...]:
        return tuple(
            one._replace(parent=None) if cuts else one
            for one in self.metadata.snapshots
            if one.id == self.metadata.current
        )


def catalog(
    *, empty: bool = False, kept: int = 100, ordered: bool = True, side: bool = False, numbered: bool = False
) -> Catalog:
    """A catalog with a table of one snapshot, or of none; ``side``: with another branch, which begins there; ``numbered``: rows have ids."""
    if empty:
        return Catalog(Metadata(next_row=0 if numbered else None), kept=kept, ordered=ordered)
    first = CatalogSnapshot(FIRST_SNAPSHOT, sequence=int(ordered), first_row=0 if numbered else None)
    metadata = Metadata(
        0,
        FIRST_SNAPSHOT,
        (first,),
        int(ordered),
        side=FIRST_SNAPSHOT if side else None,
        next_row=1 if numbered else None,
    )
    return Catalog(metadata, kept=kept, ordered=ordered, ever=(first,))


def adding(
    head: TableVersion,
    snapshot_id: int,
    key: str,
    attempt: str,
    path: str = "",
    *,
    ordered: bool = True,
    said: tuple[tuple[Change, ...], State | None] = ((), None),
    withdrawn: str = "",
    marks: tuple[tuple[int, ...], Vector | None] | None = None,
    held_s: float = 0.0,
) -> CommitRequest:
    """A commit request that puts one snapshot on a base; ``said`` is what it does to the key of a table under changes, ``marks`` to a file."""
    assert isinstance(head.raw, Metadata)
    numbers = given(head.last_sequence if ordered else -1, head.raw.next_row)
    about = (key, attempt, path, *said, withdrawn, numbers.first_row_id, marks, held_s)
    added = CatalogSnapshot(snapshot_id, head.current, numbers.sequence, *about)
    side = bool(head.branch_id)
    requirements: tuple[TableRequirement, ...] = (BranchIs(head.current, side),)  # type: ignore[assignment]
    updates: tuple[TableUpdate, ...] = (AddSnapshot(added, side),)  # type: ignore[assignment]
    return CommitRequest(head, (snapshot_id,), requirements, updates, (path,) if path else ())


def forwarding(head: TableVersion, audited: int) -> RefCommit:
    """The request of a fast-forward of the main branch to the other one.

    Raises:
        ConflictError: kind BRANCH_CHANGED; the main branch, or the other one, is elsewhere.
    """
    metadata = head.raw
    assert isinstance(metadata, Metadata)
    line = list(on_side(head).ancestors())
    if metadata.side != audited or head.current not in line:
        raise ConflictError("The branch, or the main branch, has moved.", kind=Kind.BRANCH_CHANGED)
    requirements: tuple[TableRequirement, ...] = (BranchIs(head.current), BranchIs(audited, True))  # type: ignore[assignment]
    updates: tuple[TableUpdate, ...] = (MoveMain(audited),)  # type: ignore[assignment]
    return RefCommit(head, audited, requirements, updates)


def on_side(head: TableVersion) -> TableVersion:
    """A table version as the other branch has it."""
    assert isinstance(head.raw, Metadata)
    return replace(head, current=head.raw.side, branch_id="side")


def _head(metadata: Metadata, previous: tuple[str, ...]) -> TableVersion:
    snapshots = metadata.snapshots
    return TableVersion(
        table_id=TABLE_ID,
        location=metadata.location,
        current=metadata.current,
        parents=Items(tuple((one.id, one.parent) for one in snapshots)),
        sequences=Items(tuple((one.id, one.sequence) for one in snapshots)),
        summaries=Items(tuple((one.id, _summary(one)) for one in snapshots)),
        properties=Items(metadata.properties),
        last_sequence=metadata.last_sequence,
        previous=previous,
        raw=metadata,
    )


def _summary(one: CatalogSnapshot) -> Items:
    if one.withdrawn:
        return Items(((WITHDRAWN, one.withdrawn),))
    if one.held_s:
        return Items(((HELD, str(one.held_s)),))
    sequences = [{"sequence": change[0]} for change in one.changes]
    if "+" in one.key:
        pairs = zip(one.key.split("+"), one.attempt.split("+"), sequences or repeat(None), strict=False)
        named = summary([MemberWrite(key, "1:0", 1, offer=offer, changes=does) for key, offer, does in pairs])
        return Items(tuple(named.items()))
    does = ((CHANGES, json.dumps(sequences[0])),) if sequences else ()
    return Items(((KEY, one.key), (FINGERPRINT, "1:0"), (ROWS, "1"), *does) if one.key else ())
