"""Says what earlier calls did under a key: by the snapshots, by earlier table versions, and by the ledger of the main branch."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from safewrite.errors import CommitUnknownError
from safewrite.iceberg.write import members
from safewrite.protocol import keys
from safewrite.protocol.ask import Limits, side_by_side
from safewrite.protocol.effects import Effect, Ok, Outcome
from safewrite.protocol.iceberg.change import ReadMetadata
from safewrite.protocol.iceberg.commit import load
from safewrite.protocol.iceberg.failures import begun_again, replaced
from safewrite.protocol.iceberg.head import TableVersion
from safewrite.protocol.iceberg.settle import METADATA_READ_MAX
from safewrite.protocol.values import LedgerRecord, noted_sequence, sequence_noted

EMPTY = -1
"""How a ledger record spells the base of a table without snapshots."""


@dataclass(frozen=True, slots=True)
class Resolved:
    """A write that was found."""

    snapshot_id: int
    fingerprint: str
    rows: int
    files: int
    changes: Mapping[str, int] | None = None

    def entry(self, key: str) -> dict[str, Any]:
        """The entry that a receipt is made from."""
        entry = {"key": key, "fingerprint": self.fingerprint, "rows": self.rows, "files": self.files}
        return entry | ({} if self.changes is None else {"changes": self.changes})


def described(
    head: TableVersion, at: int, key: str, limits: Limits, lists: members.Lists | None = None
) -> Generator[Effect, Outcome, Resolved]:
    """A write that a snapshot carries, as the history describes it; ``lists`` are those that were read before."""
    entry = (yield from (lists or members.Lists()).entry(head, at, key, limits)) or {}
    rows, files = int(entry.get("rows", 0)), int(entry.get("files", 0))
    return Resolved(at, str(entry.get("fingerprint", "")), rows, files, entry.get("changes"))


def newest(known: TableVersion, limits: Limits) -> Generator[Effect, Outcome, TableVersion]:
    """The table as it is now; it must be the one that the ledger belongs to, for another has snapshots of its own.

    Raises:
        ConflictError: kind TABLE_REPLACED.
    """
    head = yield from load(limits)
    if head.scope != known.scope:
        raise begun_again() if head.table_id == known.table_id else replaced(in_doubt=False)
    return head


def stands(snapshot_id: int, head: TableVersion, noted: int | None = None) -> bool:
    """Whether a remembered snapshot counts: it does, unless it is there and was rolled back, or the table was set back to before it.

    ``noted`` is the base of the ledger's record of it.  The table version must be newer than the record.
    """
    sequence = sequence_noted(noted)
    never = sequence is not None and head.never_had(snapshot_id, sequence)
    return not never and not head.is_rolled_back(snapshot_id)


def landed_and_expired(
    key: str, base: int, head: TableVersion, limits: Limits
) -> Generator[Effect, Outcome, Resolved | None]:
    """A commit under the key that an earlier table version shows, where its snapshot was expired since (E2, C1).

    None where there is none, or where ``head`` itself shows it.  One that was rolled back is none.

    Raises:
        CommitUnknownError: the table versions that would show it cannot be read.
    """
    answers = yield from all_landed_and_expired({key: base}, head, limits, members.Lists())
    found = answers[key]
    if isinstance(found, CommitUnknownError):
        raise found
    return found


def all_landed_and_expired(
    bases: Mapping[str, int], head: TableVersion, limits: Limits, lists: members.Lists
) -> Generator[Effect, Outcome, dict[str, Resolved | CommitUnknownError | None]]:
    """As :func:`landed_and_expired`, for keys and the bases of their first attempts: each table version is read once."""
    reached = {base for base in set(bases.values()) if reaches(head, base)}
    carried = members.carried(head, bases) if len(reached) < len(set(bases.values())) else {}
    left = {key: base for key, base in bases.items() if key not in carried and base not in reached}
    answers: dict[str, Resolved | CommitUnknownError | None] = dict.fromkeys(bases)
    for location in tuple(reversed(head.previous))[:METADATA_READ_MAX]:
        if not left:
            break
        outcome = yield ReadMetadata(location, name="recall.read_metadata")
        if not isinstance(outcome, Ok):
            break
        state = outcome.value
        assert isinstance(state, TableVersion)
        found = members.carried(state, left)
        rolled_back = members.named(state, left)
        reached = {base for base in set(left.values()) if base_of(state) == base or reaches(state, base)}
        for key, at in found.items():
            answers[key] = yield from described(state, at, key, limits, lists)
        settled = {*found, *rolled_back, *(key for key, base in left.items() if base in reached)}
        left = {key: base for key, base in left.items() if key not in settled}
    return answers | {key: _expired(key) for key in left}


def reaches(head: TableVersion, base: int) -> bool:
    """Whether the metadata holds every snapshot since ``base``."""
    if base == EMPTY:
        line = list(head.ancestors())
        return not line or head.sequences[line[-1]] == 1  # v1 tables have no sequence numbers
    return head.is_current(base)


def _expired(key: str) -> CommitUnknownError:
    return CommitUnknownError(
        f"An earlier call with key {key!r} may have committed, and the snapshots that would show it were expired. "
        "Nothing was written by this call. Look whether the rows are in the table; if not, write them under "
        "another key. Keep snapshots for longer than writes are repeated, or give the table lock_table= for "
        "its ledger.",
        key=key,
    )


def base_of(head: TableVersion) -> int:
    return EMPTY if head.current is None else head.current


# --- before a branch began --------------------------------------------------------------------------
def landed(record: LedgerRecord, head: TableVersion, at: int) -> LedgerRecord:
    """A record of a write that a snapshot carries: with its sequence number, which is not to be had once it has expired."""
    sequence = head.sequences.get(at)
    return replace(record, base_version=noted_sequence(sequence)) if sequence else record


def before_branch(
    names: Sequence[str], head: TableVersion, limits: Limits
) -> Generator[Effect, Outcome, tuple[dict[str, Resolved | CommitUnknownError], TableVersion]]:
    """Writes that came along when the branch began and whose snapshots may have expired, by key: the main branch's ledger knows them.

    An error where that is not known.  Also the table version that shows it.
    """
    if head.began is None or not names:
        return {}, head
    answers = yield from side_by_side(*(keys.recall(name, limits, of_main=True) for name in names))
    known = [record for record in answers if isinstance(record, LedgerRecord)]
    if not known:
        return {}, head
    head = yield from newest(head, limits)
    found: dict[str, Resolved | CommitUnknownError] = {}
    told = yield from _by_main(
        [record for record in known if _came_along(record, head) is None], head, limits
    )
    for asked in known:
        record = told.get(asked.key, asked)
        came = False if record is None else _came_along(record, head)
        if came is None:
            found[asked.key] = _undecided(asked.key)
        elif came:
            assert record is not None
            assert record.version is not None
            rows = int(record.fingerprint.split(":")[1])
            found[record.key] = Resolved(record.version, record.fingerprint, rows, 0)
    return found, head


def _by_main(
    undecided: Sequence[LedgerRecord], head: TableVersion, limits: Limits
) -> Generator[Effect, Outcome, dict[str, LedgerRecord | None]]:
    """What the main branch's own line says of its ledger's records, in this table version and earlier ones.

    A record of a commit has its sequence number then; None where the write did not land there, as where a fast-forward was to bring it
    and ended before it moved the main branch.  What none of them shows is left out.
    """
    left, told = {record.key: record for record in undecided}, dict[str, LedgerRecord | None]()
    for location in (head.location, *reversed(head.previous))[:METADATA_READ_MAX]:
        if not left:
            break
        outcome = yield ReadMetadata(location, of_main=True, name="recall.read_metadata")
        if not isinstance(outcome, Ok):
            break
        state = outcome.value
        assert isinstance(state, TableVersion)
        carriers = members.carried(state, left)
        for record in tuple(left.values()):
            at = carriers.get(record.key) if record.version is None else record.version
            if at is not None and at in state.sequences:
                written = yield from described(state, at, record.key, limits)
                known = replace(record, version=at, fingerprint=written.fingerprint or record.fingerprint)
                told[record.key] = landed(known, state, at)
            elif record.version is None and reaches(state, record.base_version):
                told[record.key] = None
            else:
                continue
            del left[record.key]
    return told


def _came_along(record: LedgerRecord, head: TableVersion) -> bool | None:
    """Whether a write of the main branch is in this one, which began later; None where that is not known."""
    at = record.version
    if at is None:
        sequence = head.sequences.get(record.base_version)
        is_later = sequence is not None and 0 < (head.began or 0) < sequence
        # What began on a snapshot of this branch, or on a later one of the main branch, landed here where it is seen, or nowhere.
        return False if is_later or reaches(head, record.base_version) else None
    if head.is_current(at):
        return True
    if not stands(at, head, record.base_version):
        return False
    sequence = head.sequences.get(at) or sequence_noted(record.base_version)
    return sequence <= head.began if sequence and head.began else None


def _undecided(key: str) -> CommitUnknownError:
    return CommitUnknownError(
        f"The main branch has, or may have, a write with key {key!r}, and the snapshots that would show whether it landed before the "
        "branch began were expired. Nothing was written by this call. Look whether the rows are on the branch; if not, write them under "
        "another key.",
        key=key,
    )
