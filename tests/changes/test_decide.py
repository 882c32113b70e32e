"""What a batch does is what the oracle says, whatever the log, its order and its split."""

from __future__ import annotations

from collections import Counter
from dataclasses import fields

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from safewrite.changes.meaning.decide import ChangeBatch, ChangeCounts, ChangeOp, Decision, KnownRows, decide
from safewrite.errors import InvalidInputError
from safewrite.testing.changes import Change, Oracle, RefusedError
from tests.sampling import no_more_than

SCHEMA = pa.schema(
    {"a": pa.int64(), "b": pa.string(), "s": pa.int64(), "t": pa.int64(), "value": pa.string()}
)
KEYS, SEQUENCE = ("a", "b"), ("s", "t")
OPS = {"upsert": ChangeOp.UPSERT, "delete": ChangeOp.DELETE, "truncate": ChangeOp.TRUNCATE}

sequences = st.tuples(st.integers(0, 2), st.integers(0, 3))
names = st.tuples(st.integers(0, 1), st.sampled_from("xy"))


def row(key: tuple[int, str], value: str) -> tuple[int, str, str]:
    return (*key, value)


changes = st.one_of(
    st.builds(
        lambda key, seq, value: Change("upsert", seq, key, value), names, sequences, st.sampled_from("pq")
    ),
    st.builds(
        lambda key, seq, value: Change("upsert", seq, key, value), names, sequences, st.sampled_from("pq")
    ),
    st.builds(lambda key, seq: Change("delete", seq, key), names, sequences),
    st.builds(lambda seq: Change("truncate", seq), sequences),
)


class Target:
    """A table as the decisions leave it."""

    def __init__(self) -> None:
        self.rows = SCHEMA.empty_table()
        self.tombstones = SCHEMA.empty_table().select([*KEYS, *SEQUENCE])
        self.floor: tuple[int, ...] | None = None
        self.forgotten: tuple[int, ...] | None = None

    def apply(self, batch: list[Change]) -> Counter[str]:
        decision = decide(
            self.batch(batch), KnownRows(self.rows, self.tombstones, self.floor, self.forgotten)
        )
        self.take(decision, self.batch(batch))
        told = {field.name: getattr(decision.counts, field.name) for field in fields(ChangeCounts)}
        return Counter({name: count for name, count in told.items() if count})

    @staticmethod
    def batch(batch: list[Change]) -> ChangeBatch:
        table = pa.Table.from_pylist(
            [
                dict(zip(SCHEMA.names, [*(one.key or (None, None)), *one.sequence, one.row], strict=True))
                for one in batch
            ],
            SCHEMA,
        )
        return ChangeBatch(table, np.array([OPS[one.op] for one in batch], np.int8), KEYS, SEQUENCE)

    def take(self, decision: Decision, batch: ChangeBatch) -> None:
        kept = np.setdiff1d(np.arange(self.rows.num_rows), decision.dropped)
        new = batch.table.take(pa.array(decision.upserts, pa.int64()))
        self.rows = pa.concat_tables([self.rows.take(pa.array(kept, pa.int64())), new])
        stones = [self.tombstones.take(pa.array(decision.kept, pa.int64()))]
        stones.append(batch.table.take(pa.array(decision.deletes, pa.int64())).select([*KEYS, *SEQUENCE]))
        self.tombstones, self.floor = pa.concat_tables(stones), decision.floor
        if self.floor is not None:
            assert all((one["s"], one["t"]) >= self.floor for one in self.rows.to_pylist())

    def shown(self) -> dict[tuple[int, str], str]:
        found = [((one["a"], one["b"]), one["value"]) for one in self.rows.to_pylist()]
        assert len(found) == len(dict(found)), "a key is there twice"
        return dict(found)


AROUND_A_TRUNCATE = [Change("upsert", (0, 3), (0, "x"), value) for value in "ppq"]
AROUND_A_TRUNCATE += [Change("truncate", (0, 3)), Change("upsert", (0, 3), (0, "x"), "p")]


@no_more_than(200)
@given(st.lists(st.lists(changes, max_size=8), max_size=5), st.none() | sequences)
@example([AROUND_A_TRUNCATE], None)
@example([AROUND_A_TRUNCATE[1:]], None)
@example([AROUND_A_TRUNCATE[:1] * 2 + AROUND_A_TRUNCATE[3:]], None)
@example([AROUND_A_TRUNCATE + AROUND_A_TRUNCATE[4:]], None)
def test_each_batch_does_what_the_oracle_says(
    batches: list[list[Change]], forgotten: tuple[int, int] | None
) -> None:
    oracle, target = Oracle(forgotten=forgotten), Target()
    target.forgotten = forgotten
    for batch in batches:
        try:
            told = oracle.apply(batch)
        except RefusedError:
            with pytest.raises(InvalidInputError, match="Nothing was written"):
                target.apply(batch)
            continue
        assert target.apply(batch) == told
        assert sum(told.values()) == len(batch)
        assert target.shown() == oracle.rows
        assert target.floor == oracle.floor
        gone = {key: entry.sequence for key, entry in oracle.entries.items() if entry.row is None}
        stones = {(one["a"], one["b"]): (one["s"], one["t"]) for one in target.tombstones.to_pylist()}
        assert stones == gone


# --- the meaning, one rule at a time ------------------------------------------------------------------
K, OTHER = (1, "x"), (2, "x")


def up(sequence: tuple[int, int], value: str = "p", key: tuple[int, str] = K) -> Change:
    return Change("upsert", sequence, key, value)


def down(sequence: tuple[int, int], key: tuple[int, str] = K) -> Change:
    return Change("delete", sequence, key)


def after(*batches: list[Change], forgotten: tuple[int, int] | None = None) -> tuple[Target, Counter[str]]:
    """A table after these batches, and what the last of them did."""
    target, told = Target(), Counter[str]()
    target.forgotten = forgotten
    for batch in batches:
        told = target.apply(batch)
    return target, told


def refused(*batches: list[Change], forgotten: tuple[int, int] | None = None) -> str:
    *earlier, last = batches
    target, _ = after(*earlier, forgotten=forgotten)
    with pytest.raises(InvalidInputError, match="Nothing was written") as raised:
        target.apply(last)
    return str(raised.value)


def test_the_last_change_by_sequence_wins_in_whatever_order_batches_come() -> None:
    for batches in ([[up((1, 0))], [up((2, 0), "q")]], [[up((2, 0), "q")], [up((1, 0))]]):
        assert after(*batches)[0].shown() == {K: "q"}


def test_sequences_are_compared_part_by_part() -> None:
    assert after([up((2, 0), "q")], [up((1, 9))])[0].shown() == {K: "q"}


def test_a_late_change_does_not_revive_a_deleted_row() -> None:
    for batches in ([[up((1, 0))], [down((3, 0))], [up((2, 0))]], [[down((3, 0))], [up((2, 0))]]):
        target, told = after(*batches)
        assert (target.shown(), told) == ({}, {"late": 1})


def test_a_row_comes_back_with_a_newer_change_and_its_tombstone_goes() -> None:
    target, told = after([down((3, 0))], [up((4, 0))])
    assert (target.shown(), target.tombstones.num_rows, told) == ({K: "p"}, 0, {"inserted": 1})


def test_deletes_are_guarded_as_updates_are() -> None:
    assert after([up((5, 0))], [down((4, 0))])[0].shown() == {K: "p"}


def test_equal_rows_of_one_sequence_are_duplicates_and_unequal_ones_are_refused_with_the_key() -> None:
    assert after([up((1, 0))], [up((1, 0))])[1] == {"duplicate": 1}
    assert after([down((1, 0))], [down((1, 0))])[1] == {"duplicate": 1}
    for batches in (
        [[up((1, 0))], [up((1, 0), "q")]],
        [[up((1, 0)), up((1, 0), "q")]],
        [[up((1, 0))], [down((1, 0))]],
        [[down((1, 0))], [up((1, 0))]],
    ):
        assert "{'a': 1, 'b': 'x'}" in refused(*batches)


def test_within_a_batch_the_place_decides_between_a_delete_and_an_insert() -> None:
    assert after([up((1, 0)), down((1, 0))])[0].shown() == {}
    assert after([down((1, 0)), up((1, 0))])[0].shown() == {K: "p"}


def test_a_key_change_is_a_delete_and_an_insert_with_one_sequence() -> None:
    assert after([up((1, 0))], [down((2, 0)), up((2, 0), "p", OTHER)])[0].shown() == {OTHER: "p"}


def test_a_truncate_is_a_tombstone_of_everything_before_it() -> None:
    start = [up((1, 0)), up((1, 1), "q", OTHER)]
    target, told = after(start, [Change("truncate", (2, 0)), up((2, 0), "r")], [up((1, 5), "s", OTHER)])
    assert (target.shown(), told) == ({K: "r"}, {"late": 1})
    assert after(start, [up((2, 0), "r"), Change("truncate", (2, 0))])[0].shown() == {}
    assert "neither comes first" in refused(start, [Change("truncate", (1, 1))])


def test_what_is_older_than_all_tombstones_that_are_kept_is_refused_and_not_guessed() -> None:
    assert "horizon" in refused([up((1, 0))], forgotten=(1, 0))
    assert after([up((1, 1))], forgotten=(1, 0))[0].shown() == {K: "p"}


def test_a_row_that_has_no_sequence_is_older_than_every_change() -> None:
    """Another writer appended it, or it was there before changes were applied."""
    target = Target()
    target.rows = pa.Table.from_pylist([{"a": 1, "b": "x", "value": "old"}], SCHEMA)
    assert target.apply([up((0, 0), "new")]) == {"updated": 1}
    assert target.shown() == {K: "new"}


def test_a_key_that_is_in_the_table_twice_is_named() -> None:
    target = Target()
    target.rows = pa.Table.from_pylist([{"a": 1, "b": "x", "s": n, "t": 0} for n in range(2)], SCHEMA)
    with pytest.raises(InvalidInputError, match=r"in the table twice.*'a': 1.*Leave one row"):
        target.apply([up((5, 0))])
