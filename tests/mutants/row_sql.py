"""The protections of filters and computed columns: each mutant takes one away, and its killer must notice."""

from __future__ import annotations

from tests.mutants.killers import Mutant, alone

COMPUTING, BY_TASKS = alone("cdc/test_computing.py"), alone("cdc/test_sql_by_tasks.py")
SHARES = "cdc/table/shares.py"
LEFT_OUT = "test_a_value_that_the_source_left_out_is_taken_from_the_row_before"

ROW_SQL_MUTANTS = (
    Mutant(
        "cdc-sql-leaves",
        "the delete of a row that leaves the filter",
        "cdc/sql/computing.py",
        (("    left = None if table.is_appended else pa.array(gone[kept])\n", "    left = None\n"),),
        COMPUTING,
        "test_a_version_ends_where_its_row_leaves_the_filter",
    ),
    Mutant(
        "cdc-sql-guard",
        "the position that moves with each commit of computed rows",
        "cdc/table/table_batch.py",
        (("            moved |= next_revision(positions)\n", "            pass\n"),),
        COMPUTING,
        "test_a_row_that_changes_while_it_is_computed_stops_the_job_once",
    ),
    Mutant(
        "cdc-sql-rank",
        "the order of a row that left the filter, by its own values",
        "cdc/rows/ranking.py",
        (("    if row.op is not Op.DELETE or row.left:\n", "    if row.op is not Op.DELETE:\n"),),
        COMPUTING,
        "test_columns_that_order_changes_say_whether_a_row_has_left_the_filter",
    ),
    Mutant(
        "cdc-sql-unknown",
        "the dead letter of a row that lacks what an expression reads",
        "cdc/sql/computing.py",
        (
            (
                "    gone.setdefault(id(row.change), DeadLetter(row.change.record, why, sql.table.name))\n    return False\n",
                "    return True\n",
            ),
        ),
        COMPUTING,
        LEFT_OUT,
    ),
    Mutant(
        "cdc-sql-past",
        "the look whether a later change makes it no matter what a row lacks",
        "cdc/sql/computing.py",
        (("lookup.is_past(row, sql.reads(row.lacks))", "False"),),
        COMPUTING,
        LEFT_OUT,
    ),
    Mutant(
        "cdc-sql-dot",
        "the refusal of functions behind a dot, in front of which a column does not count as read",
        "cdc/config/sql.py",
        (("                _refuse_dot(text, part)\n", ""),),
        COMPUTING,
        "test_sql_that_would_make_other_rows_is_refused",
    ),
    Mutant(
        "cdc-sql-tasks-version",
        "the look whether executors have the driver's DuckDB",
        SHARES,
        (("(version := duckdb_version()) != self.duckdb", "(version := None)"),),
        BY_TASKS,
        "test_executors_without_the_driver_s_duckdb_compute_nothing",
    ),
    Mutant(
        "cdc-sql-tasks-lacks",
        "the driver's landing of rows that lack values, where they are computed",
        SHARES,
        (("        if table.expressions and any(row.lacks for row in rows.rows):\n", "        if False:\n"),),
        BY_TASKS,
        "test_values_that_the_source_left_out_are_the_driver_s",
    ),
    Mutant(
        "cdc-sql-tasks-apart",
        "the driver's landing of computed rows under new keys",
        SHARES,
        (("        if self.table.expressions and self.moves.asked:\n", "        if False:\n"),),
        BY_TASKS,
        "test_a_changed_key_whose_halves_come_apart_is_the_driver_s",
    ),
    Mutant(
        "cdc-sql-tasks-guard",
        "the same position in commits of executors",
        "cdc/table/task_shares.py",
        (("            moved |= next_revision(self.positions)\n", "            pass\n"),),
        BY_TASKS,
        "test_a_commit_of_executors_moves_what_guards_computed_rows",
    ),
)
