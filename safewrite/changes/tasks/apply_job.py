"""Lets tasks apply the changes of one batch to a table: looks keys up, decides and writes, rewrites files; the driver's half.

A plan may be made again for a later version of the table.  Data files never change, so only new ones are looked through
then.  Where no row and no tombstone of a key came or went, what was decided stands, with new places for rows of files that lost
others; else it is decided again, and parts whose rows that come are the same are not written again (decision 0068).

Jobs of an engine cost more than few changes do: where such come out of a frame, and touch few bytes of the table, this process
goes on with them once they are read.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
import pyarrow as pa

from safewrite.changes.lookup.candidate_rows import NO_COLUMNS, Before
from safewrite.changes.lookup.key_index import HashSet, key_hashes
from safewrite.changes.lookup.table_files import (
    LOOK_FILES,
    FileRemainder,
    LiveFile,
    RowsThatCame,
    TableFiles,
    WantedKeys,
)
from safewrite.changes.meaning.accounting import check_result
from safewrite.changes.meaning.decide import Decision
from safewrite.changes.meaning.member_batches import GroupOutcome
from safewrite.changes.meaning.memory import Memory
from safewrite.changes.meaning.positions import Flags, Numbers
from safewrite.changes.meaning.reading import check_target, parsed
from safewrite.changes.meaning.spec import Check, Spec
from safewrite.changes.tasks.abc import AppliedBatch
from safewrite.changes.tasks.apply_tasks import (
    AppliedPart,
    ApplyPart,
    LookUp,
    LookupReport,
    Rewrite,
    looked_name,
)
from safewrite.changes.tasks.by_part import KeyDecisions, joined
from safewrite.changes.tasks.part_sums import (
    effect_of_truncates,
    needs_whole,
    question_of,
    summed,
)
from safewrite.changes.tasks.read_task import ReadBatch, ReadChanges, ReadReport
from safewrite.changes.tasks.rebase import AGAIN_MAX
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


class EngineChanges(Protocol):
    """Changes as a caller has them, and the engine that they are with."""

    @property
    def engine(self) -> Engine[Any]: ...

    @property
    def columns(self) -> pa.Schema:
        """Those of the data, of which a table may get some."""

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
        """See :class:`EngineChanges`."""
        check_target(spec, schema)
        spec = parsed(replace(spec, check=None), self.columns)  # the driver checks
        task = ReadChanges(spec, schema, partition_by, taken=self.taken)
        with self.engine.map(self.source, task) as mapped:
            report = ReadReport.together(mapped.bodies(), spec, schema)
            yield ReadBatch(spec, schema, report, self.named(report.fingerprint)), mapped.rows


def judged(spec: Spec, given: EngineChanges, columns: pa.Schema) -> Check | None:
    """A caller's check, of rows that were written as the engine of these changes has them; None where there is none."""
    check = spec.check
    return None if check is None else lambda rows, counts: check(given.shown(rows, columns), counts)


@dataclass(frozen=True)
class _KeyLook:
    """A look-up: the rows that it gave, and what it says of files; ``number`` tells its files from those of others."""

    number: int
    source: Any
    found: LookupReport
    is_whole: bool


@dataclass(frozen=True)
class _KnownFile:
    """What a look-up says of a file that was called ``origin`` then, and may have lost rows since.

    ``left`` are the places, as they were then, of those rows that it gave and that are live; of all rows ``stays`` says which are, None if
    all.  ``of`` are live.
    """

    look: _KeyLook
    origin: str
    left: Numbers
    of: int
    stays: Flags | None = None

    @property
    def looked_as(self) -> str:
        """Its name among the files of all look-ups."""
        return looked_name(self.look.number, self.origin)

    def after(self, stays: Flags) -> _KnownFile:
        """The file without rows that others took since."""
        whole = np.flatnonzero(np.ones(self.of, np.bool_) if self.stays is None else self.stays)[stays]
        flags = np.zeros(self.of if self.stays is None else len(self.stays), np.bool_)
        flags[whole] = True
        return replace(self, left=self.left[flags[self.left]], of=len(whole), stays=flags)

    def now(self, places: Numbers) -> Numbers:
        """The places that rows have now."""
        return places if self.stays is None else (np.cumsum(self.stays) - 1)[places]


@dataclass(frozen=True)
class _DecidedJob:
    """What was decided on one base: by all rows of keys that were found, ``rows``, by the files that look-ups gave them of."""

    memory: Memory
    rows: Mapping[str, Numbers]
    answer: KeyDecisions
    parts: Sequence[AppliedPart]
    frame: Any = None

    def finds(self, rows: Mapping[str, Numbers]) -> bool:
        """Whether it was decided by these rows."""
        return rows.keys() == self.rows.keys() and all(
            np.array_equal(places, self.rows[name]) for name, places in rows.items()
        )


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
    lasting: pa.Schema = NO_COLUMNS
    """Columns of the files in which the next row of a key has the values of the one before."""
    _looks: list[_KeyLook] = field(default_factory=list, repr=False)
    _known: dict[str, _KnownFile] = field(default_factory=dict, repr=False)
    """What is known of files that were looked through, by their names now."""
    _seen: dict[str, LiveFile] = field(default_factory=dict, repr=False)
    """The files of the last plan."""
    _last: _DecidedJob | None = field(default=None, repr=False)
    _written: dict[bytes, RowsThatCame] = field(default_factory=dict, repr=False)
    """The files of the rows of changes at some places."""
    _stack: ExitStack = field(default_factory=ExitStack, repr=False)

    def close(self) -> None:
        """Let the engine forget the rows that were looked up."""
        self._stack.close()

    @property
    def values(self) -> Mapping[str, pa.Array]:
        """See :class:`safewrite.changes.tasks.abc.BatchWork`."""
        return self.changes.values

    @property
    def bounds(self) -> Predicate:
        """See :class:`safewrite.changes.tasks.abc.BatchWork`."""
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
        live = {file.name: file for file in files}
        yield from self._follow(live)
        cuts, whole = (
            effect_of_truncates(self.changes, memory),
            self.whole or needs_whole(self.changes, memory),
        )
        if not self._looks and self.check is None:
            self._bring_here(files)
        self._look_up(
            [file for name, file in live.items() if not self._knows(name, whole=whole)], whole=whole
        )
        known = {name: self._known[name] for name in live}
        decided = self._standing(memory, known)
        stands = decided is not None
        if decided is None:
            decided = self._decided(memory, live, cuts, whole=whole)
        if decided.answer.ties:
            ties = {one.looked_as: name for name, one in known.items()}
            self._look_up([live[ties[name]] for name in sorted(decided.answer.ties)], whole=True)
            known = {name: self._known[name] for name in live}
            decided = self._decided(memory, live, cuts, whole=True)
        effect = summed(self.changes, memory, decided.answer, cuts)
        check = None if stands else self.check  # it has judged these rows
        check_result(replace(self.changes.spec, check=check), effect.settled.decision, decided.frame)
        written = self._files_of(decided)
        reused = sum(
            one.rows for one, part in zip(written, decided.parts, strict=True) if part.written is None
        )
        rows = sum(one.rows for one in written)
        is_rebased = stands or (self._last is not None and reused >= AGAIN_MAX * rows)
        self._last, self._seen, self._known = decided, live, known
        names = {one.looked_as: (name, one) for name, one in known.items()}
        goes = {names[looked][0]: names[looked][1].now(places) for looked, places in effect.goes.items()}
        return AppliedBatch(
            GroupOutcome(effect.settled, effect.after(memory, now_ms)),
            rows,
            goes,
            effect.cut,
            {name: one.of for name, one in known.items()},
            files=tuple(file for one in written for file in one.files),
            change_files=tuple(file for one in written for file in one.changes),
            is_rebased=is_rebased,
        )

    def _files_of(self, decided: _DecidedJob) -> list[RowsThatCame]:
        """The rows that come, by the parts of a decision.

        Raises:
            InternalError: they are not those that were decided about.
        """
        for part in decided.parts:
            if part.written is not None:
                self._written[part.come] = part.written
        written = [
            self._written[part.come] if part.written is None else part.written for part in decided.parts
        ]
        rows, counts = sum(one.rows for one in written), decided.answer.counts
        if decided.answer.ties or rows != counts.inserted + counts.updated:
            raise InternalError(
                f"Tasks wrote {rows} rows, and decided about others. Nothing was committed. Please report it."
            )
        return written

    def _bring_here(self, files: Sequence[LiveFile]) -> None:
        """Go on in this process where there is little to do; the changes are those that the engine has read.

        The rows that a check is given stay with the engine.
        """
        nbytes = self.changes.report.nbytes + sum(file.nbytes for file in files)
        if self.changes.rows <= FEW_ROWS and nbytes <= FEW_BYTES:
            rows = self.engine.here(self.source)
            if rows is not None:
                self.engine, self.source = LocalEngine(), rows

    # --- a later base ---------------------------------------------------------------------------------
    def _follow(self, live: Mapping[str, LiveFile]) -> Generator[Effect, Outcome, None]:
        """Take what is known of files over to what they are now, where others took rows of them."""
        before = [file for name, file in self._seen.items() if name not in live]
        after = [file for name, file in live.items() if name not in self._known]
        if not before or not after:
            return
        for name, now, stays in (yield from self.files.followed(before, after)):
            if len(stays) == self._known[name].of:  # else the file has other rows than its entry says
                self._known[now] = self._known[name].after(stays)

    def _standing(self, memory: Memory, known: Mapping[str, _KnownFile]) -> _DecidedJob | None:
        """What was decided, where nothing that it rests on differs but numbers of tombstones."""
        last = self._last
        if last is None or not last.finds(_rows_of(known)):
            return None
        if last.memory.says_the_same(memory):
            return last
        then, now = self._stones(last.memory), self._stones(memory)
        if (
            then is None
            or now is None
            or not last.memory.tombstones.take(then).equals(memory.tombstones.take(now))
        ):
            return None
        if (memory.floor, memory.forgotten) != (last.memory.floor, last.memory.forgotten):
            return None
        lost = now[np.searchsorted(then, last.answer.lost)]
        return replace(last, memory=memory, answer=replace(last.answer, lost=lost))

    def _stones(self, memory: Memory) -> Numbers | None:
        """The tombstones that may be of keys of the batch; None where it may be of more than its keys what is remembered."""
        hashes = self.changes.report.key_hashes()
        if hashes is None or memory.carried.num_rows or self.changes.report.truncates.num_rows:
            return None
        return HashSet(hashes).among(key_hashes(memory.tombstones, self.changes.spec.looked_up))

    def _knows(self, name: str, *, whole: bool) -> bool:
        known = self._known.get(name)
        return known is not None and (known.look.is_whole or not whole)

    # --- look-ups -----------------------------------------------------------------------------------
    def _look_up(self, files: Sequence[LiveFile], *, whole: bool) -> None:
        """Look through files; what an earlier look-up said of them counts no more."""
        if not files:
            return
        look = self._looked_through(files, LocalEngine(), whole=whole) if self._is_little(files) else None
        if look is None or any(map(len, look.found.given.values())):
            look = self._looked_through(files, self.engine, whole=whole)
        self._looks.append(look)
        for name, of in look.found.of.items():
            self._known[name] = _KnownFile(look, name, look.found.given[name], of)

    def _is_little(self, files: Sequence[LiveFile]) -> bool:
        """Whether a later look-up is worth no job of Spark's, if it finds nothing."""
        return (
            bool(self._looks)
            and not isinstance(self.engine, LocalEngine)
            and sum(file.nbytes for file in files) <= FEW_BYTES
        )

    def _looked_through(self, files: Sequence[LiveFile], engine: Engine[Any], *, whole: bool) -> _KeyLook:
        number, report, spec = len(self._looks), self.changes.report, self.changes.spec
        groups = in_groups(files, LOOK_BYTES, LOOK_FILES)
        wanted = WantedKeys(
            spec.looked_up,
            spec.sequence_by,
            self.changes.schema,
            report.key_hashes(),
            whole,
            self.lasting,
            self.changes.cuts,
        )
        task = LookUp(self.files, groups, wanted, self._parts, number)
        mapped = self._stack.enter_context(engine.map(engine.numbers(len(groups)), task))
        found = LookupReport({}, {})
        for one in mapped.bodies():
            found.of.update(one.of)
            found.given.update(one.given)
        if found.of.keys() != {file.name for file in files}:
            raise InternalError(
                f"{len(files)} files were to be looked through, and {len(found.of)} were. Nothing was committed. Please report it."
            )
        return _KeyLook(number, mapped.rows, found, whole)

    @property
    def _parts(self) -> int:
        return self.changes.parts or parts_for(self.changes.rows, TASK_ROWS)

    # --- the decision -------------------------------------------------------------------------------
    def _decided(
        self, memory: Memory, live: Mapping[str, LiveFile], cuts: Decision, *, whole: bool
    ) -> _DecidedJob:
        known = {name: self._known[name] for name in live}
        rows = _rows_of(known)
        looks = [
            look for look in self._looks if any(one.look is look and len(one.left) for one in known.values())
        ]
        given = {
            looked_name(look.number, name): (look, places)
            for look in looks
            for name, places in look.found.given.items()
            if len(places)
        }
        gone = {
            name: np.setdiff1d(places, rows[name], assume_unique=True) if name in rows else None
            for name, (_, places) in given.items()
            if name not in rows or len(rows[name]) < len(places)
        }
        is_of_places = not (self.whole or needs_whole(self.changes, memory))
        task = ApplyPart(
            self.files.named(self.new_id()),
            question_of(self.changes, memory, whole=whole),
            gone,
            frozenset(self._written) if is_of_places else frozenset(),
            self.check is not None,
            self.lasting,
        )
        source = self.engine.together([self.source, *(look.source for look in looks)])
        mapped = self._stack.enter_context(self.engine.map(self.engine.exchange(source, self._parts), task))
        applied: list[AppliedPart] = mapped.bodies()
        expected = (
            self.changes.rows - self.changes.report.truncates.num_rows,
            sum(len(places) for _, places in given.values()),
        )
        found = sum(one.changes for one in applied), sum(one.rows for one in applied)
        if found != expected:
            raise InternalError(
                f"{expected[0]} changes and {expected[1]} rows were sent to be decided about, and {found[0]} and {found[1]} came. "
                "Nothing was committed. Please report it."
            )
        answer = joined((one.answer for one in applied), cuts.counts)
        return _DecidedJob(memory, rows, answer, applied, None if self.check is None else mapped.rows)

    # --- files that lose rows -------------------------------------------------------------------------
    def rewrite(
        self, work: Sequence[tuple[LiveFile, Numbers]], before: Before | None
    ) -> Generator[Effect, Outcome, dict[str, FileRemainder]]:
        """See :class:`safewrite.changes.tasks.abc.BatchWork`."""
        yield from ()
        gone = {file.name: numbers for file, numbers in work}
        files, rests = self.files.named(self.new_id()), dict[str, FileRemainder]()
        groups = in_groups([file for file, _ in work], REWRITE_BYTES, LOOK_FILES)
        tasks = [Rewrite(files, tuple((file, gone[file.name]) for file in some), before) for some in groups]
        for one in bodies(self.engine.run(tasks)):
            rests.update(one)
        return rests


def _rows_of(known: Mapping[str, _KnownFile]) -> dict[str, Numbers]:
    """The live rows of keys, by the files that look-ups gave them of."""
    return {one.looked_as: one.left for one in known.values() if len(one.left)}


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
