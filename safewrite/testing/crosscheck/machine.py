"""Runs a program against real tables, and compares what every reader finds with what the oracle knows."""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from safewrite.errors import (
    CommitUnknownError,
    ForeignWriterError,
    InternalError,
    InvalidInputError,
    Kind,
    NotCommittedError,
    SafewriteError,
    WouldAlterError,
)
from safewrite.testing.crosscheck import changes, known
from safewrite.testing.crosscheck.conditions import columns_of, sql, tuples
from safewrite.testing.crosscheck.frames import UNTYPED, CannotBringError, frame
from safewrite.testing.crosscheck.home import Home, types
from safewrite.testing.crosscheck.oracle import DisagreementError, ProgramOracle
from safewrite.testing.crosscheck.program import Column, Program, Step
from safewrite.testing.crosscheck.readers import Reader, whole
from safewrite.upkeep.maintain import TAKEN

if TYPE_CHECKING:
    from safewrite.testing.crosscheck.spark import Hands

Tally = Counter[str]

HOLDERS = ("held", "early", "fresh", "pickled", "threaded")
"""Which table object makes a call: one opened after the table was made, or before; opened for this call; ..."""


_ALIKE = {"threaded": "held", "pickled": "held"}


@dataclass
class ProgramRun:
    """One program under way; ``tally`` counts what happened, so that a run shows what it has tried."""

    program: Program
    home: Home
    tally: Tally = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.oracle = ProgramOracle(self.program.columns)
        self.objects: dict[str, Any] = {}
        self.writes: list[Step] = []
        self.readers: dict[str, Reader] = {}
        self.deeds = 1  # an object that was opened early has not seen who made the table
        self.holder = "held"
        """The object of the step that is under way."""
        self.looked: dict[str, int] = {}
        """How many deeds of others each object has seen."""

    def play(self) -> None:
        """Make the table and take every step.

        Raises:
            DisagreementError: a reader, a receipt or an error is not what it must be.
        """
        if not self._made():
            return
        self.readers = self.home.readers(self.program)
        self._look(None, "making the table")
        for number, step in enumerate(self.program.steps):
            self._take(step)
            if not self._stands_after(step):
                return
            self._look(step, f"step {number} ({step.who} {step.what})")
        self._ask_for_all_names()

    # --- making -------------------------------------------------------------------------------------
    def _made(self) -> bool:
        """Let the maker create it, and say whether it did; an early object was opened before."""
        program = self.program
        early = self.guarded(lambda: self.home.open(program, create=True), "open early")
        if not isinstance(early, SafewriteError):
            self.objects["early"] = early
        if program.maker == "safewrite":
            files = self.home.files()
            refused = self.guarded(lambda: self.home.make(program, self.oracle), "safewrite make")
            if isinstance(refused, SafewriteError):
                self._untouched(files, "safewrite make")
                return False
        else:
            try:
                self.home.make(program, self.oracle)
            except Exception as error:  # noqa: BLE001 - another engine's refusal
                self.tally[f"{program.maker} make: {type(error).__name__}"] += 1
                return False
            self.tally[f"{program.maker} make"] += 1
        self.oracle.keep(self.home.state())
        held = self.guarded(lambda: self.home.open(program), "open")
        if isinstance(held, SafewriteError):
            if program.maker == "safewrite":
                raise DisagreementError(f"a table of safewrite's own cannot be opened: {held}")
            return True
        self.objects["held"] = held
        self.looked["held"] = self.deeds
        return True

    # --- one step -----------------------------------------------------------------------------------
    def _stands_after(self, step: Step) -> bool:
        """Whether there still is a table: other engines leave some that nobody opens."""
        try:
            self.oracle.keep(self.home.state())
        except Exception as error:
            if step.who == "safewrite":
                raise DisagreementError(f"after {step.what} nobody opens the table: {error}") from error
            self.tally[f"{step.who} {step.what}: ruins the table"] += 1
            return False
        return True

    def _take(self, step: Step) -> None:
        if step.who == "safewrite":
            self._ours(step)
            return
        deed = self.home.deeds().get((step.who, step.what))
        if deed is None:
            self.tally[f"{step.who} {step.what}: not here"] += 1
            return
        try:
            deed(step, self.oracle)
        except DisagreementError:
            raise
        except BaseException as error:  # deltalake and polars panic with exceptions of no family
            if isinstance(error, KeyboardInterrupt | SystemExit):
                raise
            self.tally[f"{step.who} {step.what}: {type(error).__name__}"] += 1
            self.oracle.foreign = True
            return
        self.oracle.foreign = True
        self.deeds += 1
        self.tally[f"{step.who} {step.what}"] += 1

    def _ours(self, step: Step) -> None:
        label, self.holder = f"safewrite {step.what}", step.object_
        table = self.guarded(lambda: self._object(step.object_), f"{step.object_} object")
        if isinstance(table, SafewriteError):
            return
        match step.what:
            case "append" | "overwrite" | "delete" | "merge":
                self._write(step, table, label)
            case "change":
                changes.apply(self, step, table, label)
            case "repeat":
                if self.writes:
                    self._write(self.writes[step.detail[0] % len(self.writes)], table, label)
            case "resolve":
                self._resolve(step, table)
            case "refresh":
                self.guarded(table.refresh, label)
            case "checkpoint" if self.program.format == "delta":
                self.guarded(table.checkpoint, label)
            case "maintain":
                self._maintain(table, label)

    def _object(self, holder: str) -> Any:
        match holder:
            case "fresh":
                return self.home.open(self.program)
            case "pickled":
                return pickle.loads(pickle.dumps(self._held("held")))
            case "threaded":
                return _Threaded(self._held("held"))
        return self._held(holder)

    def _held(self, holder: str) -> Any:
        if holder not in self.objects:
            self.objects[holder] = self.home.open(self.program)
        return self.objects[holder]

    # --- writing ------------------------------------------------------------------------------------
    def _write(self, step: Step, table: Any, label: str) -> None:
        columns = self._columns(step)
        try:
            brought = self._frame(step, columns) if step.what != "delete" else None
        except CannotBringError:
            self.tally["frames that cannot be"] += 1
            return
        name = _named(step)
        where = self._where(step)
        files = self.home.files()
        call: Callable[[], Any]
        match step.what:
            case "append":
                call = lambda: table.append(brought, **name)  # noqa: E731
            case "merge":
                call = lambda: table.append(brought, schema_mode="merge", **name)  # noqa: E731
            case "overwrite":
                call = lambda: table.overwrite(brought, where=where, **name)  # noqa: E731
            case _:
                call = lambda: table.delete(where, **name)  # noqa: E731
        hands = getattr(self.home, "hands", None)
        with nullcontext() if hands is None else hands.settings(self.program.session):
            receipt = self.guarded(call, f"{label} by {step.by}" if step.rows else label)
        if isinstance(receipt, SafewriteError):
            self._refused(step, receipt, columns)
            # What others changed since is found with the commit, when small files are there already.
            if receipt.kind is not Kind.TABLE_REPLACED and not self._is_behind():
                self._untouched(files, label)
            self._looks()
            return
        self._looks()
        self._judge(step, receipt, columns)
        if step.name is not None:
            self.writes.append(step)

    def _is_behind(self) -> bool:
        """Whether others changed the table since the object that makes a call looked at it last."""
        return (
            self.holder != "fresh" and self.looked.get(_ALIKE.get(self.holder, self.holder), 0) < self.deeds
        )

    def _looks(self) -> None:
        if self.holder != "pickled":
            self.looked[_ALIKE.get(self.holder, self.holder)] = self.deeds

    def _frame(self, step: Step, columns: tuple[Column, ...]) -> Any:
        if step.by != "spark":
            return frame(step.by, step.rows, columns)
        hands: Hands = self.home.hands  # type: ignore[attr-defined]
        return hands.frame(step.rows, columns)

    def _columns(self, step: Step) -> tuple[Column, ...]:
        """The columns of the step's rows: those of the table, and others that they bring."""
        known = {column.name: column for column in (*self.oracle.columns, *self.program.columns)}
        brought = [Column(*one) for one in step.detail if isinstance(one, tuple)]
        known |= {column.name: column for column in brought}
        named = list(dict.fromkeys(name for row in step.rows for name in row))
        return tuple(known.get(name, Column(name, "string")) for name in named) or self.oracle.columns

    def _where(self, step: Step) -> Any:
        if step.where is None:
            return None
        listed = tuples(step.where) if step.form == "tuples" else None
        known = types(self.oracle)
        if listed is not None or not columns_of(step.where) <= set(known):
            return listed
        return sql(step.where, "safewrite", known)

    def _refused(self, step: Step, error: SafewriteError, columns: tuple[Column, ...]) -> None:
        """Judge a refusal: it is right, unless nothing was wrong with the rows and nobody else touched the table."""
        if self.oracle.below is not None and "checkConstraints" in str(error):
            raise DisagreementError(f"a constraint that is evaluated was refused: {error}")
        own = tuple(one for one in self.oracle.columns if one not in self.oracle.computed)
        plain = step.by not in (*UNTYPED, "spark") and step.what == "append" and columns == own
        sound = plain and not self.oracle.foreign and self.program.maker == "safewrite"
        repeats = step.name is not None and step.name in self.oracle.names
        if sound and not repeats and not isinstance(error, InvalidInputError | WouldAlterError):
            raise DisagreementError(f"rows as good as any were refused: {type(error).__name__}: {error}")

    def _untouched(self, files: frozenset[str] | None, label: str) -> None:
        """Check that a refused call left no file."""
        after = self.home.files()
        if files is not None and after is not None and after - files:
            raise DisagreementError(f"{label} was refused, and left {sorted(after - files)}")

    def _judge(self, step: Step, receipt: Any, columns: tuple[Column, ...]) -> None:
        oracle, name = self.oracle, step.name
        if receipt.outcome == "already_committed":
            if name not in oracle.names and not oracle.rolled_back:
                raise DisagreementError(f"{name!r} is said to be committed before, and never was")
            return
        if name is not None and name in oracle.names and not oracle.rolled_back:
            raise DisagreementError(f"{name!r} was committed for the second time")
        meant = oracle.meant(step.rows)
        if step.what == "merge":
            there = set(oracle.column_names())
            oracle.widen([column for column in columns if column.name not in there])
        if step.what == "overwrite":
            oracle.remove(oracle.matching(step.where))
        if step.what == "delete":
            oracle.remove(oracle.matching(step.where))
            meant = {}
        oracle.check(meant)
        oracle.add(meant, name)
        if receipt.rows != len(step.rows) and step.what != "delete":
            raise DisagreementError(f"the receipt tells of {receipt.rows} rows, and not of {len(step.rows)}")

    def _resolve(self, step: Step, table: Any) -> None:
        if not isinstance(step.name, str):
            return
        found = self.guarded(lambda: table.resolve(step.name), "safewrite resolve")
        if isinstance(found, SafewriteError) or self.oracle.rolled_back:
            return
        if (found is None) is (step.name in self.oracle.names):
            said = "never committed" if found is None else "committed"
            raise DisagreementError(f"resolve says that {step.name!r} was {said}, and that is not so")

    def _maintain(self, table: Any, label: str) -> None:
        """Put small files together, which changes no row; nobody else is there to take a group first."""
        report = self.guarded(table.maintain, label)
        self._looks()
        if isinstance(report, SafewriteError):
            return
        self.tally["files put together"] += report.files_in
        if TAKEN in report.dropped:
            raise DisagreementError(f"{label} left groups out, and nobody was there to take them: {report}")

    def _ask_for_all_names(self) -> None:
        """Check that a fresh object knows every acknowledged name."""
        names = [name for name in self.oracle.names if isinstance(name, str)]
        if not names:
            return
        table = self.guarded(lambda: self.home.open(self.program), "open at the end")
        if isinstance(table, SafewriteError):
            return
        for name in names:
            self._resolve(Step("safewrite", "resolve", name=name), table)

    # --- guarding and looking -----------------------------------------------------------------------
    def guarded(self, call: Callable[[], Any], label: str) -> Any:
        """The result of a call of safewrite's, or its refusal; anything else is a fault."""
        try:
            found = call()
        except (CommitUnknownError, ForeignWriterError, InternalError) as error:
            raise DisagreementError(f"{label}: {type(error).__name__}: {error}") from error
        except SafewriteError as error:
            self.tally[f"{label}: {type(error).__name__}"] += 1
            if not isinstance(error, NotCommittedError):
                raise DisagreementError(f"{label}: {type(error).__name__}: {error}") from error
            return error
        except DisagreementError:
            raise
        except Exception as error:
            raise DisagreementError(f"{label}: a raw {type(error).__name__}: {error}") from error
        self.tally[label] += 1
        return found

    def _look(self, step: Step | None, after: str) -> None:
        wheres = [None] if step is None or not self._can_ask(step) else [None, step.look]
        kinds = types(self.oracle)
        said: list[str] = []
        for where in wheres:
            for reader, found in whole(self.readers, kinds, where):
                if isinstance(found, Exception):
                    text = f"{reader}: cannot read: {type(found).__name__}: {found}"
                    said += [text]
                    continue
                self.tally[f"read by {reader}"] += 1
                said += self.oracle.compare(reader, found, where)
        unexplained = []
        for text in said:
            reason = known.explained(text, self.program, self.oracle)
            if reason is None:
                unexplained.append(text)
            else:
                self.tally[f"known: {reason}"] += 1
        if unexplained:
            raise DisagreementError("\n".join([f"after {after}:", *unexplained[:10]]))

    def _can_ask(self, step: Step) -> bool:
        return step.look is not None and columns_of(step.look) <= set(self.oracle.column_names())


class _Threaded:
    """Makes each call of a table in another thread."""

    def __init__(self, table: Any) -> None:
        self._table = table

    def __getattr__(self, name: str) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            with ThreadPoolExecutor(1) as pool:
                return pool.submit(getattr(self._table, name), *args, **kwargs).result()

        return call


def _named(step: Step) -> Mapping[str, Any]:
    if isinstance(step.name, tuple):
        return {"txn": step.name}
    return {} if step.name is None else {"key": step.name}


def play(program: Program, home: Home, tally: Tally | None = None) -> None:
    """Run one program in a home; raises DisagreementError."""
    ProgramRun(program, home, Counter() if tally is None else tally).play()


def summary(tally: Tally) -> Sequence[str]:
    """What was tried, most often first."""
    return [
        f"{count:8} {what}" for what, count in sorted(tally.items(), key=lambda item: (-item[1], item[0]))
    ]
