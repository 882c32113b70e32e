"""Keeps what an Iceberg table tells of its rows for each branch: batches, positions, the file of deleted keys.

The main branch has its properties under their plain names.  Another branch that safewrite writes to has a set of its own:
``safewrite.branch.NAME`` says which branch it is and which snapshot changed the set last, ``safewrite.branch.NAME.PROPERTY`` is one
of the set.  Other engines move branches and tell nothing of it, as Spark's ``fast_forward`` does.  So the set counts whose last
snapshot is nearest in a branch's line; the next commit on the branch writes it as its own.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote

from safewrite.iceberg.own_properties import BATCH, BRANCH, MEMORY, MEMORY_OF, POSITION

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.table.update import TableUpdate

MAIN = "main"
_TAG = "safewrite-changes"
_FOREVER_MS = 2**63 - 1


@dataclass(frozen=True, slots=True)
class BranchRecord:
    """Which branch of a name it is (one that was dropped and made again is another), and which snapshot changed its set last.

    ``began`` is the sequence number of the newest snapshot that it has from the main branch; 0 where that is not known.
    """

    id: str
    at: int
    began: int | None = None

    def text(self, table_id: str) -> str:
        """The property's value."""
        began = {} if self.began is None else {"began": self.began}
        return json.dumps({"table": table_id, "id": self.id, "at": self.at, **began})


@dataclass(frozen=True, slots=True)
class BranchSet:
    """What counts on a branch: ``of`` is the branch that has it as its own; ``rows`` are its properties, by plain name."""

    of: str
    rows: Mapping[str, str]


def record_name(branch: str) -> str:
    """The property that says which branch it is."""
    return BRANCH + quote(branch, safe="").replace(".", "%2E")


def tag_of(branch: str) -> str:
    """The tag that keeps the snapshot whose statistics is the branch's file of deleted keys."""
    return _TAG if branch == MAIN else f"{_TAG}-{branch}"


def record_of(metadata: TableMetadata, branch: str) -> BranchRecord | None:
    """Which branch it is; None for one that safewrite never wrote to, or where another table's properties were copied."""
    try:
        fields = json.loads(metadata.properties.get(record_name(branch), "null"))
        if fields["table"] == str(metadata.table_uuid):
            began = fields.get("began")
            return BranchRecord(str(fields["id"]), int(fields["at"]), None if began is None else int(began))
    except (ValueError, TypeError, KeyError, RecursionError):
        pass
    return None


def began(metadata: TableMetadata, at: int, main: int | None = None) -> int:
    """The sequence number of the newest snapshot in the line of ``at`` that the main branch has too; 0 where none is known.

    ``main`` is where the main branch will be, if it moves.
    """
    parents = {one.snapshot_id: one.parent_snapshot_id for one in metadata.snapshots}
    ref = metadata.refs.get(MAIN)
    mains = {*line_of(parents, main or (None if ref is None else ref.snapshot_id))}
    common = next((one for one in line_of(parents, at) if one in mains), None)
    found = None if common is None else metadata.snapshot_by_id(common)
    return 0 if found is None else found.sequence_number or 0


def began_of(metadata: TableMetadata, branch: str) -> int | None:
    """The same of a branch, or as its record has it where that is newer; None where nothing tells of it."""
    ref, record = metadata.refs.get(branch), record_of(metadata, branch)
    if ref is None or record is None:
        return None
    now = began(metadata, ref.snapshot_id)
    return now or None if record.began is None else max(now, record.began)


def own_record(metadata: TableMetadata, branch: str) -> BranchRecord | None:
    """Which branch it is, unless its line shows that another engine made it again: without the snapshot of which the record tells.

    That may have expired.  Then it is the same branch as long as nothing shows otherwise: all snapshots since it began, which would
    have to have that one among them, or newer ones of the main branch than it had.
    """
    record, ref = record_of(metadata, branch), metadata.refs.get(branch)
    if record is None or ref is None or branch == MAIN:
        return record
    numbers = {one.snapshot_id: one.sequence_number or 0 for one in metadata.snapshots}
    line = [
        *line_of({one.snapshot_id: one.parent_snapshot_id for one in metadata.snapshots}, ref.snapshot_id)
    ]
    if record.at in numbers or not line:
        return record if record.at in line else None
    if (
        record.began is None or not numbers[line[0]]
    ):  # an earlier build began it, or format version 1 has no numbers
        return record
    is_whole = numbers[line[-1]] <= record.began
    return None if is_whole or began(metadata, ref.snapshot_id) > record.began else record


def has_sets(metadata: TableMetadata) -> bool:
    """Whether safewrite wrote to another branch than the main one."""
    return any(name.startswith(BRANCH) for name in metadata.properties)


def set_of(metadata: TableMetadata, branch: str) -> BranchSet:
    """The set of properties that counts on a branch."""
    of = _counting(metadata, branch) if has_sets(metadata) else MAIN
    return BranchSet(of, _stored(metadata, of))


def view(metadata: TableMetadata, branch: str) -> Mapping[str, str]:
    """The table's properties as the branch has them: what tells of rows is of its own rows, under plain names."""
    if not has_sets(metadata):
        return metadata.properties
    plain = {name: text for name, text in metadata.properties.items() if not tells_of_rows(name)}
    return {**plain, **set_of(metadata, branch).rows}


def updates(
    metadata: TableMetadata, branch: str, changed: Mapping[str, str], snapshot_id: int
) -> tuple[TableUpdate, ...]:
    """The updates that put changed properties, given by plain names, in the set of the branch that a snapshot is made on."""
    record = record_of(metadata, branch)
    if branch == MAIN and not has_sets(metadata):
        return _properties(changed, ())
    assert branch == MAIN or record is not None
    now = set_of(metadata, branch)
    known = None if branch == MAIN else began_of(metadata, branch)
    last = BranchRecord("" if record is None else record.id, snapshot_id, known)
    others = [
        update
        for name, at in led(metadata, branch).items()
        for update in replacing(
            metadata, name, replace(_records(metadata)[name], at=at), set_of(metadata, name)
        )
    ]
    if now.of == branch:
        own = {record_name(branch): last.text(str(metadata.table_uuid))}
        return (*others, *_properties(_named(branch, changed) | own, ()))
    return (*others, *replacing(metadata, branch, last, replace(now, rows={**now.rows, **changed})))


def led(metadata: TableMetadata, branch: str) -> dict[str, int]:
    """Branches on which the set of this one counts, as another engine moved them here, and their snapshots.

    The set is to be made theirs before this branch changes it.
    """
    if not has_sets(metadata):
        return {}
    others = {name: metadata.refs.get(name) for name in _records(metadata) if name != branch}
    return {
        name: ref.snapshot_id
        for name, ref in others.items()
        if ref is not None and set_of(metadata, name).of == branch
    }


def replacing(
    metadata: TableMetadata, branch: str, record: BranchRecord, now: BranchSet
) -> tuple[TableUpdate, ...]:
    """The updates that make a set the branch's own; its tag keeps the file of deleted keys that the other one's keeps."""
    named = _named(branch, now.rows)
    gone = [name for name in _named(branch, _stored(metadata, branch)) if name not in named]
    own = {record_name(branch): record.text(str(metadata.table_uuid))}
    return (*_properties(named | own, gone), *_tagging(metadata, branch, now.of))


def dropped(metadata: TableMetadata) -> dict[str, BranchRecord]:
    """The records of branches that are gone, and whose sets count on no other branch."""
    names = [name for name, ref in metadata.refs.items() if ref.snapshot_ref_type == "branch"]
    counting = {set_of(metadata, name).of for name in names}
    return {
        name: one for name, one in _records(metadata).items() if name not in {*metadata.refs, *counting, MAIN}
    }


def removing(metadata: TableMetadata, branch: str) -> tuple[TableUpdate, ...]:
    """The updates that remove all that the table tells of a branch that is gone."""
    own = record_name(branch)
    names = [name for name in metadata.properties if name == own or name.startswith(f"{own}.")]
    return (*_properties({}, names), *untagging(metadata, branch))


def untagging(metadata: TableMetadata, branch: str) -> tuple[TableUpdate, ...]:
    """The update that removes the tag of a branch, where it has one."""
    from pyiceberg.table.update import RemoveSnapshotRefUpdate

    name = tag_of(branch)
    return (RemoveSnapshotRefUpdate.model_validate({"ref-name": name}),) if name in metadata.refs else ()


def _properties(changed: Mapping[str, str], gone: Sequence[str]) -> tuple[TableUpdate, ...]:
    from pyiceberg.table.update import RemovePropertiesUpdate, SetPropertiesUpdate

    set_them = (SetPropertiesUpdate(updates=dict(changed)),) if changed else ()
    return (*set_them, *((RemovePropertiesUpdate(removals=list(gone)),) if gone else ()))


def _tagging(metadata: TableMetadata, branch: str, source: str) -> tuple[TableUpdate, ...]:
    """The update that lets the tag of a branch keep the snapshot that another's keeps, if it keeps one."""
    kept = metadata.refs.get(tag_of(source))
    return () if kept is None else (tag(branch, kept.snapshot_id),)


def tag(branch: str, snapshot_id: int) -> TableUpdate:
    """The update that lets the tag of a branch keep a snapshot, and so the file that is its statistics."""
    from pyiceberg.table.update import SetSnapshotRefUpdate

    ref = {"ref-name": tag_of(branch), "type": "tag", "snapshot-id": snapshot_id}
    return SetSnapshotRefUpdate.model_validate(ref | {"max-ref-age-ms": _FOREVER_MS})


def moved(metadata: TableMetadata, branch: str, snapshot_id: int) -> TableUpdate:
    """The update that sets a branch to a snapshot, and leaves how long the branch and its snapshots are kept."""
    from pyiceberg.table.update import SetSnapshotRefUpdate

    was = metadata.refs.get(branch)
    kept = {
        "max-ref-age-ms": was.max_ref_age_ms,
        "max-snapshot-age-ms": was.max_snapshot_age_ms,
        "min-snapshots-to-keep": was.min_snapshots_to_keep,
    } if was is not None else {}  # fmt: skip
    ref = {"ref-name": branch, "type": "branch", "snapshot-id": snapshot_id}
    return SetSnapshotRefUpdate.model_validate(
        ref | {name: one for name, one in kept.items() if one is not None}
    )


def tells_of_rows(name: str) -> bool:
    """Whether a property, by its plain name, tells of the rows of a branch."""
    return name.startswith((BATCH, POSITION)) or name in {MEMORY, MEMORY_OF}


def line_of(parents: Mapping[int, int | None], at: int | None) -> Iterator[int]:
    """A snapshot and those that it descends from, as far as they are known."""
    while at is not None and at in parents:
        yield at
        at = parents[at]


def _named(branch: str, rows: Mapping[str, str]) -> dict[str, str]:
    """Properties as the table has them: those that tell of rows, for the branch."""
    prefix = "" if branch == MAIN else f"{record_name(branch)}."
    return {prefix * tells_of_rows(name) + name: text for name, text in rows.items()}


def _stored(metadata: TableMetadata, branch: str) -> dict[str, str]:
    """The properties of a branch's own set, by plain name."""
    prefix = "" if branch == MAIN else f"{record_name(branch)}."
    own = {
        name.removeprefix(prefix): text
        for name, text in metadata.properties.items()
        if name.startswith(prefix)
    }
    return {name: text for name, text in own.items() if tells_of_rows(name)}


def _counting(metadata: TableMetadata, branch: str) -> str:
    """The branch whose set counts on a branch: whose last snapshot is nearest in its line; its own where none is."""
    parents = {one.snapshot_id: one.parent_snapshot_id for one in metadata.snapshots}
    ref = metadata.refs.get(branch)
    place = {
        at: number for number, at in enumerate(line_of(parents, None if ref is None else ref.snapshot_id))
    }
    own = MAIN if record_of(metadata, branch) is None else branch
    found = [(len(place), True, False, own)]
    for name, record in _records(metadata).items():
        fork = next((one for one in line_of(parents, record.at) if one in place), None)
        if fork is not None:
            found.append((place[fork], fork != record.at, name != own, name))
    return min(found)[-1]


def _records(metadata: TableMetadata) -> dict[str, BranchRecord]:
    """The records of all branches, dropped ones too."""
    quoted = [name.removeprefix(BRANCH) for name in metadata.properties if name.startswith(BRANCH)]
    found = {name: record_of(metadata, name) for name in (unquote(one) for one in quoted if "." not in one)}
    return {name: record for name, record in found.items() if record is not None}
