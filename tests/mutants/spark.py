"""Protections of writes by Spark that show without Java: each mutant takes one away, and its killer must notice."""

from __future__ import annotations

from tests.mutants.killers import Mutant, alone

ZONELESS = alone("delta/test_zoneless_partitions.py")
TASKS = alone("delta/test_tasks.py")

SPARK_MUTANTS = (
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
