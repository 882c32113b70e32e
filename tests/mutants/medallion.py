"""The protections of medallion jobs: each mutant takes one away, and its killer must notice."""

from __future__ import annotations

from tests.mutants.killers import Mutant, alone

JOBS = alone("medallion/test_jobs.py")
RECORDS = alone("medallion/test_records.py")
GAPS = alone("medallion/test_gaps.py")
RESULT = alone("medallion/test_result.py")
RULES = alone("medallion/test_rules.py")
EVOLUTION = alone("medallion/test_evolution.py")
TYPES = alone("medallion/test_types.py")
LAYOUT = alone("medallion/test_layout.py")
RESTARTS = alone("medallion/test_restarts.py")
ORDERING = alone("medallion/test_ordering.py")
OUTSIDE = alone("medallion/test_outside.py")
SYNC_ORDER = alone("medallion/test_sync_order.py")
CHECK = alone("changes/test_check.py")
FOLLOWED = alone("test_added_since.py")
DELTA_GAP = "test_a_gap_of_a_delta_bronze_is_refused_and_replay_mends_it"
ICEBERG_GAP = "test_a_gap_of_an_iceberg_bronze_is_refused_and_replay_mends_it"
LOAD = "test_a_full_load_never_beats_a_change_or_a_deletion"

MEDALLION_MUTANTS = (
    Mutant(
        "medallion-position",
        "bronze's position in silver's commit",
        "medallion/silver/apply.py",
        (("            positions=moves,\n", "            positions=None,\n"),),
        GAPS,
        "test_a_compaction_of_bronze_is_passed_over",
    ),
    Mutant(
        "medallion-removed-delta",
        "the look for removed rows in Delta's log",
        "delta/read/added.py",
        (
            (
                '    if any(one.get("dataChange", True) for one in commit.removes()):\n',
                "    if False:\n",
            ),
        ),
        GAPS,
        DELTA_GAP,
    ),
    Mutant(
        "medallion-removed-iceberg",
        "the look at what a snapshot did",
        "iceberg/read/added.py",
        (('    if operation != "append" or deleted or delete_files:\n', "    if False:\n"),),
        GAPS,
        ICEBERG_GAP,
    ),
    Mutant(
        "follow-cleaned-up",
        "the refusal of a log that lacks commits which are needed",
        "delta/read/added.py",
        (("        if commits is None:\n            raise table.gap(", "        if commits is None:\n            return found\n            raise table.gap("),),
        FOLLOWED,
        "test_commits_that_were_cleaned_up_or_expired_are_missed",
    ),
    Mutant(
        "follow-other-id",
        "the look for another table in the log",
        "delta/read/added.py",
        (('    if metadata is not None and metadata.get("id") != state.table_id:\n', "    if False:\n"),),
        FOLLOWED,
        "test_a_log_of_another_table_at_the_address_is_refused",
    ),
    Mutant(
        "follow-no-ancestor",
        "the refusal of a snapshot that is no ancestor",
        "iceberg/read/added.py",
        (("    if position in head.parents:\n", "    if position in head.parents:\n        return new[::-1]\n"),),
        FOLLOWED,
        "test_a_snapshot_of_another_branch_is_no_position",
    ),
    Mutant(
        "follow-another-table",
        "the look whether a version is of this table",
        "table/added.py",
        (("    if table_id not in (None, table.table_id):\n", "    if False:\n"),),
        FOLLOWED,
        "test_a_table_that_was_dropped_and_made_again_is_another",
    ),
    Mutant(
        "medallion-made-anew",
        "the look for positions of another bronze table",
        "medallion/silver/apply.py",
        (("    if at is None and not again and any(", "    if False and any("),),
        GAPS,
        DELTA_GAP,
    ),
    Mutant(
        "medallion-lost-rows",
        "the doubt of repeats whose rows are no longer in bronze",
        "medallion/bronze/landing.py",
        (("    missing = lost(there, (one.again() for one in asked))\n", "    missing = []\n"),),
        GAPS,
        DELTA_GAP,
    ),
    Mutant(
        "medallion-quarantine-proof",
        "the rule that quarantine alone does not make a file known",
        "medallion/bronze/known_files.py",
        (("            if only_known:\n                continue\n", ""),),
        JOBS,
        "test_a_crash_between_quarantine_and_bronze_with_nothing_remembered_loses_no_row",
    ),
    Mutant(
        "I10-medallion",
        "the look whether a file was written again",
        "medallion/bronze/landing.py",
        (('    if known is not None and not _may_come_again(job, source):\n', "    if False:\n"),),
        JOBS,
        "test_a_load_that_began_again_is_refused_or_folded",
    ),
    Mutant(
        "I10-content-came-back",
        "the look whether another content came between",
        "medallion/files/file_versions.py",
        (("    is_past = came < max(known.values()) < now or came.epoch < epoch\n", "    is_past = came.epoch < epoch\n"),),
        RESTARTS,
        "test_the_third_load_wins_with_the_content_of_the_first",
    ),
    Mutant(
        "I10-content-of-a-new-task",
        "the look whether a full load's content is of an earlier epoch",
        "medallion/files/file_versions.py",
        ((" or came.epoch < epoch\n", "\n"),),
        RESTARTS,
        "test_a_new_task_loads_a_file_that_is_as_it_was",
    ),
    Mutant(
        "medallion-epoch-set-back",
        "the refusal of new files under an epoch before that of files in bronze",
        "medallion/bronze/reset_guard.py",
        (("    if config.epoch >= state.epoch:\n", "    if True:\n"),),
        RESTARTS,
        "test_a_configuration_of_an_earlier_task_lands_nothing",
    ),
    Mutant(
        "medallion-other-order",
        "the refusal of changes that another order puts below those before",
        "medallion/bronze/reset_guard.py",
        (("    if known is None or known.by == by:\n", "    if True:\n"),),
        ORDERING,
        "test_without_the_sequence_that_changes_had_they_are_refused",
    ),
    Mutant(
        "medallion-order-put-back",
        "the refusal to put rows back in another order than they had",
        "medallion/bronze/restore_rows.py",
        (("    if was is not None and was.by != order_now(job):\n", "    if False:\n"),),
        ORDERING,
        "test_rows_are_not_put_back_in_another_order_than_they_had",
    ),
    Mutant(
        "medallion-order-anew",
        "the order of changes, read anew from bronze",
        "medallion/bronze/known_files.py",
        (("            if order is not None:\n", "            if False:\n"),),
        ORDERING,
        "test_without_the_sequence_that_changes_had_they_are_refused",
    ),
    Mutant(
        "medallion-touched",
        "the note in bronze of a file that was written again as it was",
        "medallion/bronze/landing.py",
        (("    _note_touched(job, state, landed)\n", "    landed.touched.clear()\n"),),
        RESTARTS,
        "test_a_file_that_was_written_again_as_it_was_is_known_and_is_none_of_a_later_task",
    ),
    Mutant(
        "medallion-epoch-put-back",
        "the epoch of rows that are put back",
        "medallion/bronze/restore_rows.py",
        (("    return as_landed(one, was.epoch, was.changed_ms)", "    return one"),),
        RESTARTS,
        "test_rows_that_are_put_back_have_the_epoch_that_they_had",
    ),
    Mutant(
        "I9-load-lowest",
        "the lowest rank of full loads",
        "medallion/files/rows.py",
        (("pc.subtract(rank, _BELOW_ALL).cast(_SEQ)", "rank.cast(_SEQ)"),),
        JOBS,
        LOAD,
    ),
    Mutant(
        "medallion-delete-needs-its-key",
        "deletes whose other values cannot be read",
        "medallion/files/rows.py",
        (("bad if forgiven is None else bad & ~forgiven", "bad"),),
        JOBS,
        LOAD,
    ),
    Mutant(
        "medallion-open-quote",
        "the second reader of CSV files",
        "medallion/files/records.py",
        (("    if records.count != count or len(lines) != rows.num_rows:\n", "    if False:\n"),
         ("    count, ends = _count(source, data, files)\n", "    count, ends = 0, []\n")),
        RECORDS,
        "test_a_quote_that_swallows_records_is_refused",
    ),
    Mutant(
        "medallion-result",
        "the rules of what silver would become",
        "medallion/silver/apply.py",
        (("        check_result(rows, counts, job.config.quality.result, job.name)\n", ""),),
        RESULT,
        "test_a_failed_result_of_one_table_stops_no_other",
    ),
    Mutant(
        "apply-check",
        "check= of apply_changes",
        "changes/meaning/accounting.py",
        (("    if spec.check is None:\n", "    if True:\n"),),
        CHECK,
        "test_a_check_sees_the_rows_that_will_stand_and_stops_the_write",
    ),
    Mutant(
        "medallion-missing-column",
        "the look for columns that a file lacks",
        "medallion/files/rows.py",
        (("    missing, unknown = sorted(needed - set(found) - set(files.optional)), ", "    missing, unknown = [], "),),
        EVOLUTION,
        "test_a_column_that_went_is_never_null_in_silence",
    ),
    Mutant(
        "medallion-quarantine-batch",
        "the digest in the key of quarantined records",
        "medallion/tables/job.py",
        (("/{stage}/{key}/{_digest(rows)}", "/{stage}/{key}"),),
        RULES,
        "test_rules_may_change_between_a_crash_and_the_next_run",
    ),
    Mutant(
        "medallion-meaning-of-values",
        "the look at what a value of Parquet means",
        "values/declared.py",
        (("    if _family(found) != _family(kind):\n", "    if False:\n"),),
        TYPES,
        "test_a_value_of_parquet_keeps_its_digits_and_its_meaning",
    ),
    Mutant(
        "medallion-underscore",
        "configured tables that begin with an underscore",
        "medallion/files/layout.py",
        (("parts[2:] if is_of_table else parts", "parts"),),
        LAYOUT,
        "test_a_configured_table_may_begin_with_an_underscore",
    ),
    Mutant(
        "medallion-went-back",
        "the look whether silver's position names the same commit of bronze (T12)",
        "medallion/silver/apply.py",
        (("    if at is not None and not again and not lineage.is_same(at, done.stamp):\n", "    if False:\n"),),
        OUTSIDE,
        "test_a_bronze_that_goes_back_and_grows_to_the_same_number_is_told",
    ),
    Mutant(
        "medallion-declared-empty",
        "the commit of a declared truncate where no row comes (T13)",
        "medallion/silver/apply.py",
        (
            (
                "    first, *others = steps or [_CommitStep((), None)]\n",
                "    if not steps:\n        return steps\n    first, *others = steps\n",
            ),
        ),
        OUTSIDE,
        "test_a_new_task_that_is_declared_to_be_the_whole_table_empties_it_though_no_row_comes",
    ),
    Mutant(
        "medallion-swallowed",
        "the doubt of records that may have swallowed others (T14)",
        "medallion/files/records.py",
        (
            (
                "    if files.rfc4180 is not None or not ends or ends[-1] == count:\n        return records\n",
                "    if ends is not None:\n        return records\n",
            ),
        ),
        OUTSIDE,
        "test_quotes_are_text_where_the_endpoint_says_so_and_swallow_no_record_where_nobody_says",
    ),
    Mutant(
        "medallion-reload-in-task",
        "the refusal of a load behind changes of its task (T15)",
        "medallion/bronze/reset_guard.py",
        (
            (
                '    return pc.any(pc.and_(mine, pc.greater_equal(rows["_seq"], _FIRST_CHANGE))).as_py() is True\n',
                "    return False\n",
            ),
        ),
        OUTSIDE,
        "test_a_table_that_is_loaded_anew_in_a_running_task_is_refused_and_the_advice_is_right",
    ),
    Mutant(
        "medallion-ties-of-silver",
        "what becomes of a row that silver has otherwise (T3-C8)",
        "medallion/silver/watermark.py",
        (("ties = tied_with_silver(job, changes, error.unordered)\n", "ties: dict[int, str] = {}\n"),),
        SYNC_ORDER,
        "test_a_deletion_that_silver_took_stays_though_bronze_lost_it",
    ),
    Mutant(
        "medallion-ties-of-a-batch",
        "the rule that of unequal rows of one time none counts (T3-C8)",
        "medallion/silver/unordered.py",
        (("    return first.pop() if len(first) == 1 else None\n", "    return first.pop()\n"),),
        SYNC_ORDER,
        "test_of_one_batch_and_one_time_neither_counts_until_a_later_change",
    ),
)  # fmt: skip
