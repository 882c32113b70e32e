"""The protections of positions of sources: each mutant takes one away, and its killer must notice."""

from __future__ import annotations

from tests.mutants.killers import Mutant, alone, pytest

POSITIONS = alone("test_positions.py")
RESTORES = pytest("delta/test_restores.py")
OWN_PROPERTIES = alone("iceberg/test_own_properties.py")
TWO_JOBS = "test_of_two_jobs_with_one_source_the_second_commits_nothing"

POSITION_MUTANTS = (
    Mutant(
        "C8-hold",
        "the time that a holder asks for whose plan outlasts a turn",
        "protocol/delta/commit.py",
        (("        yield from ticket_queue.hold_turn(state.ticket, state.spent_s, state.limits)\n", ""),),
        alone("protocol/test_slow_plans.py"),
        "test_a_plan_longer_than_a_turn_is_not_starved_by_quick_writers",
    ),
    Mutant(
        "E7-delta",
        "the look at positions in the commits of others",
        "delta/write/transaction.py",
        (
            (
                "        self._check_txn(self.write, version, commit)\n        self._check_moved(version, commit)\n",
                "        self._check_txn(self.write, version, commit)\n",
            ),
        ),
        POSITIONS,
        TWO_JOBS,
    ),
    Mutant(
        "E7-iceberg",
        "the look at positions on the base of each attempt",
        "iceberg/write/append.py",
        (("        self.check_positions(head)\n        self.bound = head\n", "        self.bound = head\n"),),
        POSITIONS,
        TWO_JOBS,
    ),
    Mutant(
        "positions-stale-delta",
        "the look at a table whose positions are elsewhere than they were a moment ago",
        "delta/format.py",
        ((" or not stand(positions_of(self._state), operation.positions)", ""),),
        POSITIONS,
        "test_a_position_that_another_moved_since_this_table_was_looked_at_is_followed",
    ),
    Mutant(
        "positions-stale-iceberg",
        "the same on Iceberg",
        "iceberg/format.py",
        (("head if seen else self._admit(self.refresh())", "head"),),
        POSITIONS,
        "test_a_position_that_another_moved_since_this_table_was_looked_at_is_followed",
    ),
    Mutant(
        "positions-rollback",
        "the snapshot that set a position",
        "iceberg/write/positions.py",
        (
            (
                "        found |= _before(head, name) if head.is_rolled_back(snapshot_id) else {name: at}\n",
                "        found |= {name: at}\n",
            ),
        ),
        POSITIONS,
        "test_an_iceberg_table_that_was_rolled_back_has_the_positions_of_its_rows",
    ),
    Mutant(
        "kept-by-tags",
        "expiry between a kept snapshot and the branch",
        "protocol/iceberg/head.py",
        (
            (
                "        return not (is_cut_off and self.sequences.get(oldest, 0) >= self.sequences.get(snapshot_id, 0))\n",
                "        return True\n",
            ),
        ),
        alone("iceberg/test_kept_by_tags.py"),
        "test_a_write_in_a_kept_snapshot_is_not_written_again_after_expiry",
    ),
    Mutant(
        "left-its-line",
        "the branch that left the line of a snapshot",
        "protocol/iceberg/head.py",
        (
            (
                "        if {*line, self.parents[oldest]} & {self.parents[one] for one in self._line(snapshot_id)} - {None}:\n",
                "        if False:\n",
            ),
        ),
        alone("iceberg/test_kept_by_tags.py"),
        "test_a_snapshot_was_rolled_back_if_the_branch_is_known_back_to_before_it",
    ),
    Mutant(
        "positions-restored",
        "the look for a RESTORE behind a position",
        "delta/write/restored_positions.py",
        (("        if undone is not None:\n", "        if False:\n"),),
        RESTORES,
        "test_no_batch_follows_a_position_whose_rows_were_restored_away",
    ),
    Mutant(
        "positions-restored-unread",
        "the commits that a checkpoint hides",
        "delta/write/restored_positions.py",
        (("    versions = range(first, end)\n", "    versions = range(0)\n"),),
        RESTORES,
        "test_no_batch_follows_a_position_whose_rows_were_restored_away",
    ),
    Mutant(
        "positions-replaced",
        "the table's id in the name of a position",
        "delta/write/conflicts.py",
        (('    return f"{_POSITION}{table_id}:{name}"\n', '    return f"{_POSITION}{name}"\n'),),
        POSITIONS,
        "test_a_delta_table_that_replaced_another_has_none_of_its_positions",
    ),
    Mutant(
        "positions-copied",
        "the table's id in what a property tells",
        "iceberg/own_properties.py",
        (
            (
                "        return read(fields) if fields.get(TABLE, head.table_id) == head.table_id else None\n",
                "        return read(fields)\n",
            ),
        ),
        OWN_PROPERTIES,
        "test_a_source_was_taken_nowhere_in_a_clone",
    ),
)
