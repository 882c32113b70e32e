"""Which files are put together: a rule of numbers, without a table."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from safewrite.upkeep.groups import OPEN_BYTES, Inventory, StoredFile, groups_of
from safewrite.upkeep.shape import examine

MB = 2**20
TARGET = 128 * MB
SMALL_BYTES = 2**18


def files(*sizes: int, partition: str = "", **more: int) -> list[StoredFile]:
    return [
        StoredFile((partition, number), partition, size, 1_000, **more) for number, size in enumerate(sizes)
    ]


def chosen(found: Sequence[StoredFile], **heat: int) -> list[list[int]]:
    """The sizes of the files of each group."""
    groups = groups_of(Inventory(0, found, TARGET, dict(heat)))
    return [[one.size for one in group.files] for group in groups]


def test_small_neighbours_of_a_partition_are_put_together_up_to_the_target() -> None:
    assert chosen(files(1, 2, 3)) == [[1, 2, 3]]
    assert chosen(files(10 * MB, 200 * MB, 11 * MB, 12 * MB)) == [[10 * MB, 11 * MB, 12 * MB]]
    two = chosen(files(*[10 * MB] * 20))
    assert [sum(one) // MB for one in two] == [120, 80]
    assert chosen([*files(1, 1, partition="a"), *files(2, 2, partition="b"), *files(3, partition="c")]) == [
        [1, 1],
        [2, 2],
    ]


def test_what_is_not_worth_its_work_stays() -> None:
    for one in (files(5), files(60 * MB, 60 * MB), files(97 * MB, 98 * MB), []):
        assert chosen(one) == []


def test_a_file_that_is_larger_than_the_others_together_is_not_copied_for_them() -> None:
    assert chosen(files(8 * MB, *[4_000] * 10)) == [[4_000] * 10]
    assert chosen(files(8 * MB, 4_000)) == []
    assert chosen(files(OPEN_BYTES + 1, 4_000)) == []


def test_a_file_that_costs_no_more_to_copy_than_to_open_is_put_together_with_any_other() -> None:
    assert chosen(files(OPEN_BYTES, 4_000)) == [[OPEN_BYTES, 4_000]]
    assert chosen(files(2 * MB, MB, 4_000)) == [[2 * MB, MB, 4_000]]
    assert chosen(files(50 * MB, 2 * MB, 4_000)) == [[2 * MB, 4_000]]


def test_a_file_of_which_a_third_is_deleted_is_written_again_whatever_its_size() -> None:
    assert chosen(files(300 * MB, gone=300, deletes=1)) == [[300 * MB]]
    assert chosen(files(300 * MB, gone=299, deletes=1)) == []


def test_files_that_must_stay_stay() -> None:
    kept = StoredFile("kept", "", 5, stays="its rows are in an order")
    assert chosen([*files(1, 2), kept]) == [[1, 2]]


def test_cold_partitions_come_first_and_then_those_that_save_most() -> None:
    found = [
        *files(1, 1, partition="hot"),
        *files(MB, MB, partition="large"),
        *files(1, 1, 1, partition="cold"),
    ]
    assert chosen(found, hot=2) == [[1, 1, 1], [MB, MB], [1, 1]]


@given(st.lists(st.integers(1, 40), min_size=20, max_size=120))
def test_a_table_that_is_kept_in_shape_has_few_files_and_copies_a_row_seldom(rounds: list[int]) -> None:
    """Rounds of small appends with upkeep after each: files grow by doubling, but for those that cost less to copy than to open."""
    live: list[StoredFile] = []
    appended = copied = number = 0
    for count in rounds:
        for _ in range(count):
            number += 1
            live.append(StoredFile(number, "", SMALL_BYTES, 100))
            appended += SMALL_BYTES
        for group in groups_of(Inventory(0, live, 100 * TARGET, {})):
            number += 1
            live = [one for one in live if one not in group.files]
            live.append(StoredFile(number, "", group.live_bytes, 100 * len(group.files)))
            copied += group.size
        assert not groups_of(Inventory(0, live, 100 * TARGET, {}))
    doublings = (appended // OPEN_BYTES).bit_length()
    assert len(live) <= doublings + 1
    assert copied <= appended * (appended // SMALL_BYTES).bit_length() + OPEN_BYTES * len(rounds)


def test_a_table_is_told_of_where_a_scan_makes_four_times_the_requests_that_would_do() -> None:
    def found(*sizes: int) -> list[str]:
        return [one.code for one in examine(Inventory(0, files(*sizes), TARGET, {}), "s3://lake/t")]

    assert found(*[1] * 102) == ["small_files"]
    assert found(*[1] * 100) == found(*[1] * 110, *[TARGET] * 60) == found() == []
    (one,) = examine(Inventory(0, files(*[1] * 102), TARGET, {}), "s3://lake/t")
    assert one.mend == "safewrite maintain s3://lake/t"
