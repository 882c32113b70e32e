"""Writes one row to a model of an Iceberg table, by safewrite's own code, as a writer that shares snapshots."""

from __future__ import annotations

import json
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from safewrite.errors import CommitUnknownError
from safewrite.iceberg.catalog.commit_request import CommitRequest
from safewrite.iceberg.write import members
from safewrite.iceberg.write.resolve import resolve
from safewrite.iceberg.write.summary import Write
from safewrite.iceberg.write.write import IcebergDone, Ledgers, write
from safewrite.protocol.ask import Limits
from safewrite.protocol.effects import Effect, Outcome
from safewrite.protocol.iceberg.commit import load
from safewrite.protocol.iceberg.head import TableVersion
from safewrite.protocol.member_queue import FOLDER, Offer, Terms
from safewrite.testing.explorer.automaton import TICK_S, Program
from safewrite.testing.explorer.sharing import clocked
from safewrite.testing.explorer.snapshots import LIMITS, RowPlan


@dataclass(slots=True)
class SharedRowPlan(RowPlan):
    """A write of one row that other writers may commit, and that carries theirs."""

    head: TableVersion | None = None
    carried: tuple[tuple[str, str], ...] = ()
    first: int = 0
    drawn: int = 0
    member_file: None = None
    kind: str = ""
    left_out: frozenset[str] = frozenset()
    folder: ClassVar[str] = FOLDER

    @property
    def sharer(self) -> SharedRowPlan:
        return self

    @property
    def key(self) -> str:
        return self.write.key

    @property
    def known(self) -> Mapping[int, object]:
        assert self.head is not None
        return dict.fromkeys(self.head.sequences.values())

    def secure(self) -> Generator[Effect, Outcome, None]:
        yield from ()

    def carried_by(self, version: int) -> None:
        return None

    def is_barred(self, head: TableVersion) -> bool:
        return False  # no model changes a schema

    def see(self, head: TableVersion) -> None:
        self.head = head

    def member(self, base: int) -> bytes | None:
        self.write = replace(self.write, offer=self.write.offer or self.attempt)
        return json.dumps({"key": self.write.key, "offer": self.write.offer}).encode()

    def carry(self, offered: Sequence[Offer], commit_id: str) -> tuple[tuple[str, ...], frozenset[str]]:
        assert self.head is not None
        found = {one.path: json.loads(one.body) for one in offered}
        rows = {path: (str(row["key"]), str(row["offer"])) for path, row in found.items()}
        there = members.named(self.head, {key for key, _ in rows.values()})
        taken: dict[str, tuple[str, str]] = {}
        for path, (key, offer) in rows.items():
            if key not in there and key not in {self.write.key, *(name for name, _ in taken.values())}:
                taken[path] = (key, offer)
        if taken or self.carried:  # another body is another attempt
            self.drawn += 1
            self.first = self.first or self.snapshot_id
            self.snapshot_id = self.first * 100 + self.drawn
        self.carried = tuple(taken.values())
        return tuple(taken), frozenset(path for path, (key, _) in rows.items() if key in there)

    def request(self, head: TableVersion, path: str) -> CommitRequest:
        """The snapshot of our row and of those that it carries."""
        keys, attempts = zip((self.write.key, self.attempt), *self.carried, strict=True)
        return self.adding(head, self.snapshot_id, "+".join(keys), "+".join(attempts), path)


def sharing(
    key: str,
    attempt: str,
    snapshot_id: int,
    seen: TableVersion | None,
    *,
    helpers: Ledgers,
    terms: Terms,
    queue_first: bool = True,
    limits: Limits = LIMITS,
) -> Program:
    """One call of ``append`` by a table that was looked at long ago (``seen``) or is looked at now."""
    head = (yield from load(LIMITS)) if seen is None else seen
    row = SharedRowPlan(Write(key, "1:0", 1), snapshot_id, attempt, ordered=True)
    done: IcebergDone = yield from write(
        row,  # type: ignore[arg-type]
        tuple,
        head,
        helpers=helpers,
        limits=limits,
        queue_first=queue_first,
        terms=terms,
    )
    return done.version


def resolving(
    key: str, attempt: str, snapshot_id: int, *, helpers: Ledgers, terms: Terms, again: bool
) -> Program:
    """A call of ``append`` that gives up soon, and one of ``resolve`` where it ends in doubt or was killed."""
    if not again:
        hurried = replace(LIMITS, timeout_s=TICK_S)
        steps = sharing(key, attempt, snapshot_id, None, helpers=helpers, terms=terms, limits=hurried)
        try:
            return (yield from clocked(steps))
        except CommitUnknownError:
            pass
    found, _ = yield from resolve(key, helpers=helpers, limits=LIMITS, folder=FOLDER)
    return None if found is None else found.snapshot_id
