"""The protections of tables under a change log: each mutant takes one away, and its killer must notice."""

from __future__ import annotations

from tests.mutants.killers import Mutant, alone, model

MEANING, TABLES = alone("changes/test_decide.py"), alone("changes/test_tables.py")
"""A mutant says which of these must fail."""
UNCHANGED = alone("changes/test_unchanged.py")
LATE = alone("changes/test_late_changes.py")
MEMBERS = alone("changes/test_members.py")
VECTORS, MARKS = alone("changes/test_vectors.py"), alone("changes/test_marks.py")
RIVALS = alone("changes/test_rivals.py")
REFRESH, OUTSIDE = alone("changes/test_refresh.py"), alone("changes/test_outside.py")
KEYS = alone("changes/test_key_index.py")
DECIDE = "changes/meaning/decide.py"
FEED = alone("delta/test_change_feed.py")
INDEX, LOOKUP = "changes/lookup/key_index.py", "delta/data/key_lookup.py"
DELTA = "delta/write/apply.py"
VECTOR_FILES = "delta/data/vector_files.py"
CARRIED = "changes/meaning/unchanged_values.py"

CHANGE_MUTANTS = (
    Mutant(
        "M25",
        "the tombstone of a deleted key",
        DECIDE,
        (("            np.sort(self.place[winners[deletes]]),\n", "            np.zeros(0, np.int64),\n"),),
        MEANING,
        "test_a_late_change_does_not_revive_a_deleted_row",
    ),
    Mutant(
        "M26",
        "the sequence of a row against that of a change",
        DECIDE,
        (
            (
                "        wins = (self.last_change >= 0) & (change_at > self._position_at(self.last_known))\n",
                "        wins = self.last_change >= 0\n",
            ),
        ),
        MEANING,
        "test_the_last_change_by_sequence_wins_in_whatever_order_batches_come",
    ),
    Mutant(
        "M26-deletes",
        "the same for deletes alone",
        DECIDE,
        (
            (
                "        wins = (self.last_change >= 0) & (change_at > self._position_at(self.last_known))\n",
                (
                    "        wins = (self.last_change >= 0) & (\n"
                    "            (change_at > self._position_at(self.last_known)) | (self.op[self.last_change] == ChangeOp.DELETE)\n"
                    "        )\n"
                ),
            ),
        ),
        MEANING,
        "test_deletes_are_guarded_as_updates_are",
    ),
    Mutant(
        "ties",
        "the refusal of unequal changes of one sequence",
        DECIDE,
        (
            (
                "        if tied.any():\n            which",
                "        if False:\n            which",
            ),
        ),
        MEANING,
        "test_equal_rows_of_one_sequence_are_duplicates_and_unequal_ones_are_refused_with_the_key",
    ),
    Mutant(
        "floor",
        "the tombstone of everything before a truncate",
        DECIDE,
        (("            self.floor,\n        )\n", "            self.known.floor,\n        )\n"),),
        MEANING,
        "test_a_truncate_is_a_tombstone_of_everything_before_it",
    ),
    Mutant(
        "horizon",
        "the refusal of what is older than all tombstones",
        DECIDE,
        (("            if old.any():\n", "            if False:\n"),),
        MEANING,
        "test_what_is_older_than_all_tombstones_that_are_kept_is_refused_and_not_guessed",
    ),
    Mutant(
        "memory",
        "what is remembered, in the commit of the rows",
        DELTA,
        (
            (
                "        if self.remembers:\n            mine.append",
                "        if False:\n            mine.append",
            ),
        ),
        TABLES,
        "test_a_rivals_deletion_is_known_to_a_late_insert_that_was_planned_before",
    ),
    Mutant(
        "M16-changes",
        "a new plan after a rival's commit",
        DELTA,
        (("        if commit.adds() or commit.removes() or any", "        if False and any"),),
        TABLES,
        "test_two_writers_never_insert_one_new_key_twice",
    ),
    Mutant(
        "carried-sequence",
        "the sequence of a value that a row carries on",
        CARRIED,
        (("        if own.num_rows and self.count:\n", "        if False:\n"),),
        UNCHANGED,
        "test_a_late_change_brings_the_columns_that_newer_ones_left_out",
    ),
    Mutant(
        "carried-unknown",
        "the refusal of a value that nobody knows",
        CARRIED,
        (("        if unknown.any():\n", "        if False:\n"),),
        UNCHANGED,
        "test_a_truncate_ends_what_rows_carry_on",
    ),
    Mutant(
        "carried-late-delete",
        "the values of a row against a deletion that comes late",
        CARRIED,
        (("        brings |= is_row\n", ""),),
        LATE,
        "test_every_batch_of_three_changes_leaves_what_the_oracle_says",
    ),
    Mutant(
        "carried-late-truncate",
        "the values of a row against a truncate that comes late",
        CARRIED,
        (("np.where(is_row[last], place[last], value[last])", "value[last]"),),
        LATE,
        "test_a_truncate_takes_what_is_older_and_nothing_from_a_newer_row",
    ),
    Mutant(
        "carried-replay",
        "the newer value that comes with its row again",
        CARRIED,
        (("replace(known, rows=_renewed(known, origins))", "known"),),
        LATE,
        "test_every_batch_of_three_changes_leaves_what_the_oracle_says",
    ),
    Mutant(
        "renew",
        "the plan that is made again before each try",
        "protocol/delta/commit.py",
        (("        yield from state.candidate.renew()\n", ""),),
        model("changes-objects", 0),
        "revived: version 2",
    ),
    Mutant(
        "members-in-order",
        "what members before a member left to be remembered",
        "changes/members/member_batches.py",
        (("        self.memory = self.memory.with_batch(batch, settled, self.now_ms)\n", ""),),
        MEMBERS,
        "test_members_in_any_grouping_do_what_the_oracle_says",
    ),
    Mutant(
        "members-at-fault",
        "the way of a refused member out of its group",
        "changes/members/member_batches.py",
        (("            faults[member.key] = error\n", "            raise\n"),),
        MEMBERS,
        "test_a_member_at_fault_does_not_hold_up_the_others_and_leaves_no_trace",
    ),
    Mutant(
        "whole-rows",
        "the look at whole rows where keys and sequences tie",
        "changes/lookup/candidate_rows.py",
        (
            (
                "        return not meeting(self._changed, hits.rows.select(self._names), self._changed_values).any()\n",
                "        return True\n",
            ),
        ),
        alone("changes/test_many_files.py"),
        "test_changes_that_are_there_already_are_duplicates_though_only_their_keys_were_looked_at",
    ),
    Mutant(
        "vector-mask",
        "the rows that a deletion vector takes away",
        "delta/data/rows.py",
        (("    if gone is not None:\n        flags", "    if False:\n        flags"),),
        VECTORS,
        "test_deleted_rows_are_neither_seen_nor_brought_back",
    ),
    Mutant(
        "vector-removal",
        "the deletion vector of a file that is removed",
        "delta/write/overwrite.py",
        (('"tags", "deletionVector", "baseRowId"', '"tags", "baseRowId"'),),
        VECTORS,
        "test_deleted_rows_are_neither_seen_nor_brought_back",
    ),
    Mutant(
        "vector-checksum",
        "the checksum of a vector's bytes",
        "changes/meaning/row_vectors.py",
        (("    if zlib.crc32(data) != int", "    if False and int"),),
        VECTORS,
        "test_a_damaged_vector_is_refused_and_nothing_is_written",
    ),
    Mutant(
        "vector-union",
        "the rows of a file's last vector in its next",
        VECTOR_FILES,
        (("            vector |= gone\n", "            pass\n"),),
        MARKS,
        "test_files_stay_as_they_are_however_often_rows_of_them_go",
    ),
    Mutant(
        "vector-cardinality",
        "the comparison of a vector's number of rows with the plan's",
        VECTOR_FILES,
        (("(vectors.serialized(vector), len(vector))", "(vectors.serialized(vector), len(vector) + 1)"),),
        MARKS,
        "test_files_stay_as_they_are_however_often_rows_of_them_go",
    ),
    Mutant(
        "vector-places",
        "the places of rows in their file, not among its live rows",
        VECTOR_FILES,
        (
            (
                '            places = places + np.searchsorted(_before(add["path"], gone, rows), places, side="right")\n',
                "            pass\n",
            ),
        ),
        MARKS,
        "test_files_stay_as_they_are_however_often_rows_of_them_go",
    ),
    Mutant(
        "vector-check",
        "the look at uploaded vectors before the commit",
        "delta/write/overwrite.py",
        (("        yield from check(self.vectors.marks(self.marked.values()), self.limits)\n", ""),),
        MARKS,
        "test_vectors_that_went_away_before_the_commit_are_noticed",
    ),
    Mutant(
        "vector-rival",
        "the new plan of a delete whose file a rival took away",
        "delta/write/overwrite.py",
        (("partly = (FileVerdict.REWRITE, FileVerdict.MARK)", "partly = (FileVerdict.REWRITE,)"),),
        MARKS,
        "test_a_delete_whose_file_a_rival_removed_is_planned_again",
    ),
    Mutant(
        "rival-follow",
        "what was found in a file that others marked since",
        DELTA,
        (("        yield from self._follow(touched)\n", ""),),
        RIVALS,
        "test_writers_of_disjoint_keys_merge_their_marks_and_read_the_file_once",
    ),
    Mutant(
        "rival-row",
        "the rows that others marked since, which are found no more",
        "changes/lookup/candidate_rows.py",
        (("        left = stays[hits.numbers]\n", "        left = np.ones(len(hits.numbers), np.bool_)\n"),),
        RIVALS,
        "test_a_row_that_both_mark_is_decided_anew",
    ),
    Mutant(
        "rival-places",
        "the places of rows among those that others left",
        "changes/lookup/candidate_rows.py",
        (("(np.cumsum(stays) - 1)[hits.numbers[left]]", "hits.numbers[left]"),),
        RIVALS,
        "test_writers_of_disjoint_keys_merge_their_marks_and_read_the_file_once",
    ),
    Mutant(
        "rival-restore",
        "the new look at a file whose rows came back",
        VECTOR_FILES,
        (("None if (has & ~had).any() else has[had]", "has[had]"),),
        RIVALS,
        "test_a_file_whose_rows_came_back_is_looked_at_again",
    ),
    Mutant(
        "vector-path",
        "the rewrite of files whose vectors polars would pass over",
        VECTOR_FILES,
        (('_PLAIN.fullmatch(add["path"])', "True"),),
        MARKS,
        "test_a_file_whose_path_is_encoded_is_rewritten_for_polars_would_pass_over_its_vector",
    ),
    Mutant(
        "refresh-named",
        "what tells a refresh from plain changes with the same rows",
        "delta/write/plans.py",
        (('            write = named(write, EVERYTHING, "full_refresh")\n', "            pass\n"),),
        REFRESH,
        "test_a_key_of_plain_changes_is_not_that_of_a_refresh_with_the_same_rows",
    ),
    Mutant(
        "stale-refusal",
        "the newest table before changes are refused",
        "table/writer.py",
        (("if turn > 1 or Kind.CONFLICT not in kinds or error.is_settled or not", "if True or not"),),
        OUTSIDE,
        "test_changes_are_not_refused_for_rows_that_went_a_moment_ago",
    ),
    Mutant(
        "stale-file",
        "another plan where a file of the version of a moment ago is gone",
        "table/writer.py",
        (("UnsupportedTableError, DataFileError) as", "UnsupportedTableError) as"),),
        OUTSIDE,
        "test_a_file_that_went_a_moment_ago_is_not_asked_for",
    ),
    Mutant(
        "stale-members",
        "the newest table before members are refused",
        "iceberg/write/group_commit.py",
        (("            state.forget_stale_faults()\n", ""),),
        OUTSIDE,
        "test_members_are_not_refused_for_rows_that_went_a_moment_ago",
    ),
    Mutant(
        "order-of-floats",
        "NaN and the two zeros in the order of changes",
        "changes/meaning/positions.py",
        (("    if not pa.types.is_floating(column.type):\n        return column\n", "    return column\n"),),
        OUTSIDE,
        "test_a_row_whose_sequence_is_no_number_is_older_than_every_change",
    ),
    Mutant(
        "ids-of-columns",
        "the ids of the columns that deleted keys are of",
        "changes/meaning/memory.py",
        (
            (
                "        if self.ids:\n            names = ",
                "        if self.ids and not keys:\n            names = ",
            ),
        ),
        alone(
            "changes/test_renamed_columns.py::test_another_column_under_the_name_of_the_key_is_another_key"
        ),
        "test_another_column_under_the_name_of_the_key_is_another_key",
    ),
    Mutant(
        "index-of-another",
        "the file that an index is of",
        LOOKUP,
        (('add["path"], *said, values, kinds)', "values, kinds)"),),
        KEYS,
        "test_random_batches_leave_what_they_leave_without_indexes",
    ),
    Mutant(
        "index-of-another-iceberg",
        "the file that an index of an Iceberg table is of",
        "iceberg/write/key_lookup.py",
        (
            (
                "(head.table_id, file.file_path, file.file_size_in_bytes, file.record_count, kinds)",
                "(head.table_id, kinds)",
            ),
        ),
        KEYS,
        "test_random_batches_leave_what_they_leave_without_indexes",
    ),
    Mutant(
        "index-misses",
        "the read of a file that has no index",
        LOOKUP,
        (("            unread.append(key)\n", "            pass\n"),),
        KEYS,
        "test_random_batches_leave_what_they_leave_without_indexes",
    ),
    Mutant(
        "index-hits",
        "the comparison of keys that have one hash",
        INDEX,
        (
            (
                "        if not equal.all():\n",
                "        if False:\n",
            ),
        ),
        KEYS,
        "test_an_index_finds_the_rows_that_a_look_at_all_finds",
    ),
    Mutant(
        "index-twice",
        "the rows behind the first with a hash",
        INDEX,
        (("            at, sought = at[same], sought[same]\n", "            break\n"),),
        KEYS,
        "test_a_key_that_a_file_holds_twice_is_refused_with_an_index_too",
    ),
    Mutant(
        "index-gone",
        "rows that a vector took away, among those that an index finds",
        INDEX,
        (("rows.filter(pa.array(lives)), (numbers - before)[lives]", "rows, numbers - before"),),
        KEYS,
        "test_random_batches_leave_what_they_leave_without_indexes",
    ),
    Mutant(
        "index-places",
        "the places of rows among those that are left, as an index tells them",
        INDEX,
        (("(numbers - before)[lives]", "numbers[lives]"),),
        KEYS,
        "test_random_batches_leave_what_they_leave_without_indexes",
    ),
    Mutant(
        "feed-images",
        "the images of an update in the change data feed",
        "delta/write/change_feed.py",
        (('np.where(before, "update_postimage", "insert")', 'np.where(before, "insert", "insert")'),),
        FEED,
        "test_the_two_images_of_an_update_have_one_key",
    ),
    Mutant(
        "feed-whole-files",
        "rows of files that go whole, in the change data feed",
        "delta/write/overwrite.py",
        (("        self._gone |= yield from self.rows_of_files(whole)\n", ""),),
        FEED,
        "test_the_feed_of_a_delete_is_the_rows_that_went",
    ),
    Mutant(
        "feed-rivals",
        "the rows of rivals' files in the change data feed",
        "delta/write/overwrite.py",
        (("        if undecided or gone or not is_fed:\n", "        if undecided or gone:\n"),),
        FEED,
        "test_a_delete_that_takes_rows_of_a_rival_too_has_them_in_the_feed",
    ),
    Mutant(
        "feed-whole-rows",
        "all columns of rows that go, in the change data feed",
        "changes/lookup/candidate_rows.py",
        (
            (
                "        self._needs_whole = self._always_whole or carries\n",
                "        self._needs_whole = carries\n",
            ),
        ),
        FEED,
        "test_the_feed_of_random_batches_makes_each_version_of_the_one_before",
    ),
    Mutant(
        "feed-truncate",
        "the rows that a truncate takes, in the change data feed",
        "delta/write/row_files.py",
        (("        if not touched.is_cut:\n", "        if True:\n"),),
        FEED,
        "test_rows_that_a_truncate_takes_are_deletes_in_the_feed",
    ),
    Mutant(
        "widen-by-tasks",
        "the driver's look at values that ask for a wider column, which a task would write as NULL",
        "cdc/table/task_shares.py",
        (("        if dead or narrow:\n", "        if dead:\n"),),
        alone("cdc/test_widening.py"),
        "test_null_for_misfits_is_of_those_that_no_wider_type_takes",
    ),
    Mutant(
        "widen-protocol",
        "the table feature of columns that become wider",
        "delta/write/creation.py",
        (
            (
                "            needed[WIDENING] = f\"wider columns ({', '.join(one.name for one in prepared.wider)})\"\n",
                "",
            ),
        ),
        alone("test_widen.py"),
        "test_delta_s_protocol_names_the_feature_and_each_change",
    ),
)
