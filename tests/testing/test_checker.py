"""The checker is checked: every class of flaw is found, nothing else is, and a blunted checker is noticed.

Each case is a function of a checker module, so that the very same cases run on the real checker
and on mutants of its source: a mutant that passes all of them would
mean that these tests prove nothing.
"""

from __future__ import annotations

import importlib.util
import math
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from safewrite.testing import checker
from safewrite.testing.history import COLUMNS, IntendedWrite, Row, make_rows

SEED = 7
ROWS = 20


def write(writer: int, seq: int, outcome: str = "ok", *, version: int | None = None) -> IntendedWrite:
    rows = make_rows(SEED, writer, seq, ROWS)
    acked_at = 100.0 + seq if outcome == "ok" else None
    return IntendedWrite(
        kind="k", writer=writer, seq=seq, key=None, first_id=rows[0].id, checks=tuple(row.check for row in rows),
        outcome=outcome, invoked_at=99.0 + seq, acked_at=acked_at, version=version,
    )  # fmt: skip


def rows_of(*writes: IntendedWrite) -> list[Row]:
    return [row for w in writes for row in make_rows(SEED, w.writer, w.seq, ROWS)]


def columns(rows: list[Row]) -> dict[str, list[Any]]:
    return {name: [getattr(row, name) for row in rows] for name in COLUMNS}


WRITES = [write(1, 0), write(1, 1), write(2, 0)]
ALL = rows_of(*WRITES)


def flaws(module: ModuleType, writes: list[IntendedWrite], *reads: list[Row], **more: Any) -> dict[str, int]:
    """Non-zero counts of a run with these reads after it."""
    seen = [module.Read.of(f"reader {index}", columns(rows)) for index, rows in enumerate(reads)]
    counts = module.check(writes, seen, **more).counts()
    return {str(flaw): count for flaw, count in counts.items() if count}


# --- the cases ---------------------------------------------------------------------------------
def a_clean_run_has_no_flaw(module: ModuleType) -> None:
    assert flaws(module, WRITES, ALL, list(reversed(ALL)), ALL) == {}


def one_missing_row_is_lost_and_its_write_torn(module: ModuleType) -> None:
    assert flaws(module, WRITES, ALL[1:]) == {"lost": 1, "torn": 1}


def the_last_missing_row_is_lost(module: ModuleType) -> None:
    assert flaws(module, WRITES, ALL[:-1]) == {"lost": 1, "torn": 1}


def a_write_missing_as_a_whole_is_lost_and_not_torn(module: ModuleType) -> None:
    assert flaws(module, WRITES, ALL[ROWS:]) == {"lost": ROWS}


def a_row_that_comes_twice_is_doubled_once(module: ModuleType) -> None:
    assert flaws(module, WRITES, [*ALL, ALL[5]]) == {"doubled": 1}


def a_row_that_comes_four_times_is_doubled_three_times(module: ModuleType) -> None:
    assert flaws(module, WRITES, [*ALL, *[ALL[5]] * 3]) == {"doubled": 3}


def the_same_flaw_seen_by_two_readers_counts_once(module: ModuleType) -> None:
    assert flaws(module, WRITES, ALL[1:], ALL[1:]) == {"lost": 1, "torn": 1}


def readers_that_disagree_are_reported(module: ModuleType) -> None:
    assert flaws(module, WRITES, ALL, [*ALL, ALL[0]]) == {"doubled": 1, "disagreed": 1}


def swapped_values_of_two_rows_are_altered(module: ModuleType) -> None:
    """The rows keep their check values, so both betray themselves."""
    first, second, *rest = ALL
    swapped = [first._replace(amount=second.amount), second._replace(amount=first.amount)]
    assert first.amount != second.amount
    assert flaws(module, WRITES, [*swapped, *rest]) == {"altered": 2}


def rows_that_swap_ids_with_everything_else_are_altered(module: ModuleType) -> None:
    """Check values alone are consistent; the ledger knows which belongs to which id."""
    first, second, *rest = ALL
    a, b = first._replace(id=second.id), second._replace(id=first.id)
    a, b = (row._replace(check=checker.check_value(row[:-1])) for row in (a, b))
    assert flaws(module, WRITES, [a, b, *rest]) == {"altered": 2}


def a_null_that_became_empty_is_altered(module: ModuleType) -> None:
    rows = [row._replace(text="") if row.text is None else row for row in ALL]
    changed = sum(row.text is None for row in ALL)
    assert changed > 0
    assert flaws(module, WRITES, rows) == {"altered": changed}


def a_changed_check_value_is_altered(module: ModuleType) -> None:
    assert flaws(module, WRITES, [ALL[0]._replace(check=1), *ALL[1:]]) == {"altered": 1}


def a_row_nobody_meant_is_a_phantom(module: ModuleType) -> None:
    assert flaws(module, WRITES, [*ALL, *rows_of(write(9, 9))]) == {"phantom": ROWS}


def rows_of_a_refused_write_are_zombies(module: ModuleType) -> None:
    refused = write(3, 0, "fail")
    assert flaws(module, [*WRITES, refused], [*ALL, *rows_of(refused)]) == {"zombie": ROWS}
    assert flaws(module, [*WRITES, refused], ALL) == {}


def a_part_of_an_unknown_write_is_torn(module: ModuleType) -> None:
    unknown = write(3, 0, "info")
    assert flaws(module, [*WRITES, unknown], [*ALL, *rows_of(unknown)[:3]]) == {"torn": 1}


def an_unknown_write_may_be_there_or_not(module: ModuleType) -> None:
    unknown = write(3, 0, "info")
    there = module.check([*WRITES, unknown], [module.Read.of("r", columns([*ALL, *rows_of(unknown)]))])
    assert sum(there.counts().values()) == 0
    assert (there.summary()["unknown_present"], there.summary()["unknown_absent"]) == (1, 0)
    absent = module.check([*WRITES, unknown], [module.Read.of("r", columns(ALL))])
    assert sum(absent.counts().values()) == 0
    assert (absent.summary()["unknown_present"], absent.summary()["unknown_absent"]) == (0, 1)


def an_unknown_write_may_not_be_there_twice(module: ModuleType) -> None:
    unknown = write(3, 0, "info")
    assert flaws(module, [*WRITES, unknown], [*ALL, *rows_of(unknown) * 2]) == {"doubled": ROWS}


def a_read_during_the_run_needs_only_what_was_acked_before_it(module: ModuleType) -> None:
    """Writes 1/0 and 2/0 were acked at 100, 1/1 at 101."""
    early = module.Read.of("live", columns(rows_of(WRITES[0], WRITES[2])), began_at=100.5)
    assert sum(module.check(WRITES, [early]).counts().values()) == 0
    late = replace(early, began_at=101.5)
    assert module.check(WRITES, [late]).counts()[module.Flaw.LOST] == ROWS


def a_torn_write_shows_in_a_read_during_the_run(module: ModuleType) -> None:
    early = module.Read.of("live", columns(rows_of(WRITES[0], WRITES[2])[:-1]), began_at=0.0)
    assert {f: n for f, n in module.check(WRITES, [early]).counts().items() if n} == {"torn": 1}


def log_of(module: ModuleType, *adds: tuple[int, str, list[Row]]) -> Any:
    return module.ReplayedLog(
        tuple((v, path) for v, path, _ in adds), {path: [r.id for r in rows] for _, path, rows in adds}
    )


def a_file_added_twice_is_recommitted_though_readers_see_it_once(module: ModuleType) -> None:
    log = log_of(module, (1, "a", ALL[:ROWS]), (2, "b", ALL[ROWS:]), (3, "a", ALL[:ROWS]))
    assert flaws(module, WRITES, ALL, log=log) == {"recommitted": ROWS}


def a_write_spread_over_two_versions_is_torn(module: ModuleType) -> None:
    log = log_of(module, (1, "a", ALL[:5]), (2, "b", ALL[5:ROWS]), (3, "c", ALL[ROWS:]))
    assert flaws(module, WRITES, ALL, log=log) == {"torn": 1}


def a_write_in_two_files_of_one_version_is_whole(module: ModuleType) -> None:
    log = log_of(module, (1, "a", ALL[:5]), (1, "b", ALL[5:ROWS]), (2, "c", ALL[ROWS:]))
    assert flaws(module, WRITES, ALL, log=log) == {}


def a_receipt_that_names_another_version_is_misreported(module: ModuleType) -> None:
    writes = [replace(WRITES[0], version=4), *WRITES[1:]]
    log = log_of(module, (1, "a", ALL[:ROWS]), (2, "b", ALL[ROWS:]))
    assert flaws(module, writes, ALL, log=log) == {"misreported": 1}
    assert flaws(module, [replace(WRITES[0], version=1), *WRITES[1:]], ALL, log=log) == {}


def flaws_are_counted_for_the_chosen_writers_only(module: ModuleType) -> None:
    verdict = module.check(WRITES, [module.Read.of("r", columns(ALL[ROWS:]))])
    assert verdict.counts(lambda writer: writer == 1)[module.Flaw.LOST] == ROWS
    assert verdict.counts(lambda writer: writer == 2)[module.Flaw.LOST] == 0
    assert verdict.summary(lambda writer: writer == 2)["acked_rows"] == ROWS


def a_flawless_run_is_valid_only_if_every_planned_fault_fired(module: ModuleType) -> None:
    verdict = module.check(WRITES, [module.Read.of(name, columns(ALL)) for name in "abc"])
    assert module.judge(verdict, fired={"lost_answer": 3}).valid is True
    unfired = module.judge(verdict, fired={"lost_answer": 3, "cut": 0})
    assert unfired.valid is None
    assert unfired.reasons == ("planned fault cut never fired",)


def a_run_with_too_few_acks_or_readers_proves_nothing(module: ModuleType) -> None:
    verdict = module.check(WRITES, [module.Read.of(name, columns(ALL)) for name in "abc"])
    assert module.judge(verdict, fired={}, acked_rows_min=len(ALL)).valid is True
    assert module.judge(verdict, fired={}, acked_rows_min=len(ALL) + 1).valid is None
    alone = module.check(WRITES, [module.Read.of("a", columns(ALL))])
    assert module.judge(alone, fired={}).valid is None


def a_flaw_makes_a_run_invalid_even_if_faults_are_missing(module: ModuleType) -> None:
    verdict = module.check(WRITES, [module.Read.of(name, columns(ALL[1:])) for name in "abc"])
    judged = module.judge(verdict, fired={"cut": 0})
    assert judged.valid is False
    assert judged.reasons[:2] == ("1 lost", "1 torn")


CASES: list[Callable[[ModuleType], None]] = [
    a_clean_run_has_no_flaw,
    one_missing_row_is_lost_and_its_write_torn,
    the_last_missing_row_is_lost,
    a_write_missing_as_a_whole_is_lost_and_not_torn,
    a_row_that_comes_twice_is_doubled_once,
    a_row_that_comes_four_times_is_doubled_three_times,
    the_same_flaw_seen_by_two_readers_counts_once,
    readers_that_disagree_are_reported,
    swapped_values_of_two_rows_are_altered,
    rows_that_swap_ids_with_everything_else_are_altered,
    a_null_that_became_empty_is_altered,
    a_changed_check_value_is_altered,
    a_row_nobody_meant_is_a_phantom,
    rows_of_a_refused_write_are_zombies,
    a_part_of_an_unknown_write_is_torn,
    an_unknown_write_may_be_there_or_not,
    an_unknown_write_may_not_be_there_twice,
    a_read_during_the_run_needs_only_what_was_acked_before_it,
    a_torn_write_shows_in_a_read_during_the_run,
    a_file_added_twice_is_recommitted_though_readers_see_it_once,
    a_write_spread_over_two_versions_is_torn,
    a_write_in_two_files_of_one_version_is_whole,
    a_receipt_that_names_another_version_is_misreported,
    flaws_are_counted_for_the_chosen_writers_only,
    a_flawless_run_is_valid_only_if_every_planned_fault_fired,
    a_run_with_too_few_acks_or_readers_proves_nothing,
    a_flaw_makes_a_run_invalid_even_if_faults_are_missing,
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_that(case: Callable[[ModuleType], None]) -> None:
    case(checker)


# --- mutants of the checker ----------------------------------------------------------------------
_READ_LINE = "for id_, stored, computed in zip(read.ids, read.stored, read.computed, strict=True):"
MUTANTS: dict[str, tuple[str, str, set[Callable[[ModuleType], None]]]] = {
    "drops a row": (
        _READ_LINE,
        "for id_, stored, computed in zip(read.ids[1:], read.stored[1:], read.computed[1:], strict=True):",
        {a_clean_run_has_no_flaw},
    ),
    "doubles a row": (
        _READ_LINE,
        _READ_LINE.replace("read.ids,", "read.ids + read.ids[:1],")
        .replace("read.stored,", "read.stored + read.stored[:1],")
        .replace("read.computed,", "read.computed + read.computed[:1],"),
        {a_clean_run_has_no_flaw},
    ),
    "swaps two values": (
        _READ_LINE,
        _READ_LINE.replace("read.computed,", "read.computed[1::-1] + read.computed[2:],"),
        {a_clean_run_has_no_flaw},
    ),
    "hides an absence": (
        "absent = tuple(id_ for id_ in write.ids if id_ not in copies)",
        "absent = ()",
        {a_write_missing_as_a_whole_is_lost_and_not_torn, one_missing_row_is_lost_and_its_write_torn},
    ),
    "ignores how often a row appears": (
        "doubled = tuple(id_ for id_ in present for _ in copies[id_][1:])",
        "doubled = ()",
        {a_row_that_comes_twice_is_doubled_once, an_unknown_write_may_not_be_there_twice},
    ),
    "believes the stored check value": (
        "if any(stored != meant or computed != meant for",
        "if any(stored != meant for",
        {swapped_values_of_two_rows_are_altered, a_null_that_became_empty_is_altered},
    ),
    "believes rows that agree with themselves": (
        "if any(stored != meant or computed != meant for",
        "if any(stored != computed for",
        {rows_that_swap_ids_with_everything_else_are_altered},
    ),
    "looks at the table and not at the log": (
        "if repeated:",
        "if False:",
        {a_file_added_twice_is_recommitted_though_readers_see_it_once},
    ),
    "forgets faults that never fired": (
        "if count <= 0]",
        "if count < 0]",
        {a_flawless_run_is_valid_only_if_every_planned_fault_fired},
    ),
}


@pytest.fixture
def mutant(request: pytest.FixtureRequest) -> Iterator[ModuleType]:
    """The checker with one piece of its source replaced."""
    before, after, _ = MUTANTS[request.param]
    source = Path(checker.__file__).read_text()
    assert source.count(before) == 1, "the mutant's target is not in the source any more"
    spec = importlib.util.spec_from_loader("mutated_checker", loader=None)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["mutated_checker"] = module  # dataclasses look their module up
    exec(compile(source.replace(before, after), "mutated_checker", "exec"), module.__dict__)
    yield module
    del sys.modules["mutated_checker"]


@pytest.mark.parametrize(
    ("mutant", "name"), [(n, n) for n in MUTANTS], indirect=["mutant"], ids=list(MUTANTS)
)
def test_a_blunted_checker_is_noticed(mutant: ModuleType, name: str) -> None:
    """Every case that was written for this flaw fails on the mutant, and passes on the real checker."""
    missed = {case for case in CASES if not _passes(case, mutant)}
    assert missed >= MUTANTS[name][2]
    assert all(_passes(case, checker) for case in missed)


def _passes(case: Callable[[ModuleType], None], module: ModuleType) -> bool:
    try:
        case(module)
    except AssertionError:
        return False
    return True


def test_reads_after_the_run_are_at_the_end_of_time() -> None:
    assert checker.Read.of("r", columns(ALL)).began_at == math.inf
