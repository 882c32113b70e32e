"""What a process keeps of marked rows is bounded, and safe in threads."""

from __future__ import annotations

import pickle
import random
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import numpy as np

from safewrite.iceberg.write.marked_rows import ROWS_A_FILE, KnownMarks
from safewrite.iceberg.write.position_deletes import UnmarkedRows


def file(number: int) -> Any:
    return SimpleNamespace(file=SimpleNamespace(file_path=f"f{number}"), delete_files=())


def gone(rows: int) -> UnmarkedRows:
    return UnmarkedRows(1000, np.arange(rows))


def test_files_with_a_few_marked_rows_are_not_kept_without_an_end() -> None:
    known = KnownMarks(rows_max=10 * (ROWS_A_FILE + 1))
    for number in range(100):
        known.keep("t", file(number), gone(1))
    assert [name for _, name in known._kept] == [f"f{number}" for number in range(90, 100)]


def test_threads_of_one_handle_keep_marked_rows_side_by_side() -> None:
    known = KnownMarks(rows_max=5 * ROWS_A_FILE)

    def keep(seed: int) -> None:
        draw = random.Random(seed)
        for _ in range(2000):
            known.keep("t", file(draw.randrange(12)), gone(draw.randrange(50)))

    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(keep, range(8))) == [None] * 8
    assert (
        known._rows == sum(ROWS_A_FILE + len(one.gone) for _, one in known._kept.values()) <= known.rows_max
    )


def test_what_is_kept_stays_in_its_process() -> None:
    known = KnownMarks(rows_max=7)
    known.keep("t", file(0), gone(0))
    assert pickle.loads(pickle.dumps(known)) == KnownMarks(rows_max=7)
