"""Protections of writes by Spark that show without Java: each mutant takes one away, and its killer must notice."""

from __future__ import annotations

from tests.mutants.killers import Mutant, alone

ACCOUNTS, ZONELESS = alone("delta/test_spark_accounts.py"), alone("delta/test_zoneless_partitions.py")
TASKS = alone("delta/test_tasks.py")

SPARK_MUTANTS = (
    Mutant(
        "spark-read",
        "the count of rows that were read of files against the log",
        "protocol/accounts.py",
        (("    if known is not None and read < known:\n", "    if False:\n"),),
        ACCOUNTS,
        "test_an_overwrite_of_some_rows_must_have_read_all_rows_of_the_files_that_it_replaces",
    ),
    Mutant(
        "spark-whole",
        "the look whether an overwrite removes every file",
        "delta/spark/transaction.py",
        (("        if self.exact and removes != live.keys():\n", "        if False:\n"),),
        ACCOUNTS,
        "test_an_overwrite_of_everything_must_remove_every_file",
    ),
    Mutant(
        "spark-union",
        "the look whether tasks report a file twice, or other rows than they counted",
        "frames/written.py",
        (("    if len(paths) != len(files) or rows != counted:\n", "    if False:\n"),),
        TASKS,
        "test_a_union_that_lacks_or_doubles_something_is_refused",
    ),
    Mutant(
        "zoneless",
        "UTC for partition values without a zone",
        "frames/predicate.py",
        (("else moment.replace(tzinfo=dt.UTC)\n", "else moment.astimezone(dt.UTC)\n"),),
        ZONELESS,
        "test_a_table_that_deltalake_partitioned_by_an_instant_takes_every_verb",
    ),
)
