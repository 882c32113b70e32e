"""Lets tasks apply the changes of one batch to a table: looks keys up, decides and writes, rewrites files; the driver's half.

A plan may be made again for a later version of the table.  Data files never change, so only new ones are looked through
then, and where these have no row of a key, and none is gone that had, what was decided stands.

Jobs of an engine cost more than few changes do: where such come out of a frame, and touch few bytes of the table, this process
goes on with them once they are read.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Generic, Protocol, TypeVar

import pyarrow as pa

from safewrite.changes.lookup.candidate_rows import Before
from safewrite.changes.lookup.table_files import LOOK_FILES, LiveFile, Rest, TableFiles, WantedKeys
from safewrite.changes.meaning.accounting import check_result
from safewrite.changes.meaning.decide import Decision
from safewrite.changes.meaning.member_batches import GroupOutcome
from safewrite.changes.meaning.memory import Memory
from safewrite.changes.meaning.positions import Numbers
from safewrite.changes.meaning.reading import check_target, parsed
from safewrite.changes.meaning.spec import Check, Spec
from safewrite.changes.tasks.abc import AppliedBatch
from safewrite.changes.tasks.apply_tasks import (
    AppliedPart,
    ApplyPart,
    Looked,
    LookUp,
    Rewrite,
    looked_name,
    plain_name,
)
from safewrite.changes.tasks.by_part import Answer, joined
from safewrite.changes.tasks.part_sums import (
    effect_of_truncates,
    needs_whole,
    question_of,
    summed,
)
from safewrite.changes.tasks.read_task import ReadBatch, ReadChanges, ReadReport
from safewrite.engine.abc import Engine, bodies
from safewrite.engine.exchange import parts_for
from safewrite.engine.local import LocalEngine
from safewrite.errors import InternalError
from safewrite.frames.fingerprint import Fingerprint
from safewrite.frames.predicate import Predicate
from safewrite.protocol.effects import Effect, Outcome

S = TypeVar("S")

TASK_ROWS = 250_000
"""About as many changes are decided about at once, by one task in its memory."""
LOOK_BYTES = 64 * 2**20
"""A task looks through so much of the table, at most."""
REWRITE_BYTES = 32 * 2**20
FEW_ROWS, FEW_BYTES = 50_000, 64 * 2**20
"""At most this many changes, in at most this many bytes together with the files that may have their keys, are worth no job of Spark's."""


class Given(Protocol):
    """Changes as a caller has them, and the engine that they are with."""

    @property
    def engine(self) -> Engine[Any]: ...

    @property
    def shown(self) -> Callable[[Any, pa.Schema], Any]:
        """Makes of rows that were written, of some columns, what a caller's check is given."""

    def read_in(
        self, spec: Spec, schema: pa.Schema, partition_by: tuple[str, ...] = ()
    ) -> AbstractContextManager[tuple[ReadBatch, Any]]:
        """Read and check changes once, and keep them until the end of the block.

        Raises:
            WouldAlterError, InvalidInputError: as ``safewrite.changes.meaning.reading.read``.
            StorageError: the engine could not compute them.
        """


@dataclass(frozen=True)
class GivenRows(Generic[S]):
    """Changes in a source of an engine: its columns, and how the batch is named by its rows.

    ``taken`` gives values of the source the form that ``columns`` say, where it has another.  ``shown`` makes of rows that were written, of some columns, what a caller's check is given.
    """

    engine: Engine[S]
    source: S
    columns: pa.Schema
    named: Callable[[Fingerprint], Fingerprint] = lambda found: found
    taken: Callable[[Iterable[pa.RecordBatch]], Iterable[pa.RecordBatch]] | None = None
    shown: Callable[[S, pa.Schema], Any] = lambda rows, columns: rows

    @contextmanager
    def read_in(
        self, spec: Spec, schema: pa.Schema, partition_by: tuple[str, ...] = ()
    ) -> Iterator[tuple[ReadBatch, S]]:
        """See :class:`Given`."""
        check_target(spec, schema)
        spec = parsed(replace(spec, check=None), self.columns)  # the driver checks
        task = ReadChanges(spec, schema, partition_by, taken=self.taken)
        with self.engine.map(self.source, task) as mapped:
            report = ReadReport.together(mapped.bodies(), spec, schema)
            yield ReadBatch(spec, schema, report, self.named(report.fingerprint)), mapped.rows


def judged(spec: Spec, given: Given, columns: pa.Schema) -> Check | None:
    """A caller's check, of rows that were written as the engine of these changes has them; None where there is none."""
    check = spec.check
    return None if check is None else lambda rows, counts: check(given.shown(rows, columns), counts)


@dataclass(frozen=True)
class _KeyLook:
    """A look-up: the rows that it gave, and what it says of files; ``number`` tells its files from those of others."""

    number: int
    source: Any
    found: Looked
    is_whole: bool


@dataclass
class ApplyJob:
    """One batch of changes on its way.  ``source`` has its changes; ``new_id`` names files.

    ``check`` judges rows that were written, as the engine has them; None where no caller's check is asked.
    """

    engine: Engine[Any]
    changes: ReadBatch
    source: Any
    files: TableFiles
    new_id: Callable[[], str]
    whole: bool = False
    """Whether rows are always looked up with all columns."""
    check: Check | None = None
    _looks: list[_KeyLook] = field(default_factory=list, repr=False)
    _known: dict[str, _KeyLook] = field(default_factory=dict, repr=False)
    """The look-up that says what is in a file, by the file's name."""
    _last: tuple[object, Memory, AppliedBatch] | None = field(default=None, repr=False)
    _stack: ExitStack = field(default_factory=ExitStack, repr=False)

    def close(self) -> None:
        """Let the engine forget the rows that were looked up."""
        self._stack.close()

    @property
    def values(self) -> Mapping[str, pa.Array]:
        """The values of key columns that have few."""
        return self.changes.values

    @property
    def bounds(self) -> Predicate:
        """A condition that rows with keys of the batch satisfy."""
        return self.changes.bounds

    # --- a plan -------------------------------------------------------------------------------------
    def apply(
        self, memory: Memory, files: Sequence[LiveFile], now_ms: int
    ) -> Generator[Effect, Outcome, AppliedBatch]:
        """See :class:`safewrite.changes.tasks.abc.BatchWork`; the rows that come are in files.

        Raises:
            InvalidInputError: as ``safewrite.changes.meaning.decide.decide``.
            StorageError: the engine could not run it, a file is gone or differs, or the store gave no answer.
            InternalError: counts do not add up; nothing was committed.
        """
        yield from ()
        cuts = effect_of_truncates(self.changes, memory)
        whole = self.whole or needs_whole(self.changes, memory)
        live = {file.name: file for file in files}
        if not self._looks and self.check is None:
            self._bring_here(files)
        self._look_up(
            [file for name, file in live.items() if not self._knows(name, whole=whole)], whole=whole
        )
        last = self._last
        if last is not None and last[0] == self._mark(live) and last[1].says_the_same(memory):
            return replace(last[2], counts=self._counts(live))
        answer, written, frame = self._decided(memory, live, cuts, whole=whole)
        if answer.ties:
            ties = {plain_name(name) for name in answer.ties}
            self._look_up([live[name] for name in sorted(ties)], whole=True)
            answer, written, frame = self._decided(memory, live, cuts, whole=True)
        effect = summed(self.changes, memory, answer, cuts)
        rows = sum(one.written.rows for one in written)
        if answer.ties or rows != answer.counts.inserted + answer.counts.updated:
            raise InternalError(
                f"Tasks wrote {rows} rows, and decided about others. Nothing was committed. Please report it."
            )
        check_result(replace(self.changes.spec, check=self.check), effect.settled.decision, frame)
        made = AppliedBatch(
            GroupOutcome(effect.settled, effect.after(memory, now_ms)),
            rows,
            {plain_name(name): places for name, places in effect.goes.items()},
            effect.cut,
            self._counts(live),
            files=tuple(file for one in written for file in one.written.files),
            change_files=tuple(file for one in written for file in one.written.changes),
        )
        self._last = (self._mark(live), memory, made)
        return made

    def _bring_here(self, files: Sequence[LiveFile]) -> None:
        """Go on in this process where there is little to do; the changes are those that the engine has read.

        The rows that a check is given stay with the engine.
        """
        nbytes = self.changes.report.nbytes + sum(file.nbytes for file in files)
        if self.changes.rows <= FEW_ROWS and nbytes <= FEW_BYTES:
            rows = self.engine.here(self.source)
            if rows is not None:
                self.engine, self.source = LocalEngine(), rows

    def _knows(self, name: str, *, whole: bool) -> bool:
        look = self._known.get(name)
        return look is not None and (look.is_whole or not whole)

    def _mark(self, live: Iterable[str]) -> object:
        """Says which files have rows with keys of the batch, and which look-up found them."""
        known = self._known
        return frozenset((name, known[name].number) for name in live if known[name].found.given[name])

    def _counts(self, live: Iterable[str]) -> dict[str, int]:
        return {name: self._known[name].found.of[name] for name in live}

    # --- look-ups -----------------------------------------------------------------------------------
    def _look_up(self, files: Sequence[LiveFile], *, whole: bool) -> None:
        """Look through files; what an earlier look-up said of them counts no more."""
        if not files:
            return
        number, report, spec = len(self._looks), self.changes.report, self.changes.spec
        groups = in_groups(files, LOOK_BYTES, LOOK_FILES)
        wanted = WantedKeys(spec.keys, spec.sequence_by, self.changes.schema, report.key_hashes(), whole)
        task = LookUp(self.files, groups, wanted, self._parts, number)
        mapped = self._stack.enter_context(self.engine.map(self.engine.numbers(len(groups)), task))
        found = Looked({}, {})
        for one in mapped.bodies():
            found.of.update(one.of)
            found.given.update(one.given)
        if found.of.keys() != {file.name for file in files}:
            raise InternalError(
                f"{len(files)} files were to be looked through, and {len(found.of)} were. Nothing was committed. Please report it."
            )
        look = _KeyLook(number, mapped.rows, found, whole)
        self._looks.append(look)
        self._known |= dict.fromkeys(found.of, look)

    @property
    def _parts(self) -> int:
        return self.changes.parts or parts_for(self.changes.rows, TASK_ROWS)

    # --- the decision -------------------------------------------------------------------------------
    def _decided(
        self, memory: Memory, live: Mapping[str, LiveFile], cuts: Decision, *, whole: bool
    ) -> tuple[Answer, list[AppliedPart], Any]:
        looks = [look for look in self._looks if any(self._known.get(name) is look for name in live)]
        gone = frozenset(
            looked_name(look.number, name)
            for look in looks
            for name, given in look.found.given.items()
            if given and (name not in live or self._known[name] is not look)
        )
        task = ApplyPart(
            self.files.named(self.new_id()),
            question_of(self.changes, memory, whole=whole),
            gone,
            self.check is not None,
        )
        source = self.engine.together([self.source, *(look.source for look in looks)])
        mapped = self._stack.enter_context(self.engine.map(self.engine.exchange(source, self._parts), task))
        applied: list[AppliedPart] = mapped.bodies()
        expected = (
            self.changes.rows - self.changes.report.truncates.num_rows,
            sum(sum(look.found.given.values()) for look in looks),
        )
        found = sum(one.changes for one in applied), sum(one.rows for one in applied)
        if found != expected:
            raise InternalError(
                f"{expected[0]} changes and {expected[1]} rows were sent to be decided about, and {found[0]} and {found[1]} came. "
                "Nothing was committed. Please report it."
            )
        answer = joined((one.answer for one in applied), cuts.counts)
        return answer, applied, None if self.check is None else mapped.rows

    # --- files that lose rows -------------------------------------------------------------------------
    def rewrite(
        self, work: Sequence[tuple[LiveFile, Numbers]], before: Before | None
    ) -> Generator[Effect, Outcome, dict[str, Rest]]:
        """See :class:`safewrite.changes.tasks.abc.BatchWork`."""
        yield from ()
        gone = {file.name: numbers for file, numbers in work}
        files, rests = self.files.named(self.new_id()), dict[str, Rest]()
        groups = in_groups([file for file, _ in work], REWRITE_BYTES, LOOK_FILES)
        tasks = [Rewrite(files, tuple((file, gone[file.name]) for file in some), before) for some in groups]
        for one in bodies(self.engine.run(tasks)):
            rests.update(one)
        return rests


def in_groups(files: Iterable[LiveFile], nbytes: int, count: int) -> tuple[tuple[LiveFile, ...], ...]:
    """Files in groups of about so many bytes, and at most so many files."""
    groups: list[list[LiveFile]] = []
    size = nbytes
    for file in files:
        if size + file.nbytes > nbytes or len(groups[-1]) >= count:
            groups.append([])
            size = 0
        groups[-1].append(file)
        size += file.nbytes
    return tuple(map(tuple, groups))
