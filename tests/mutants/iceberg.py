"""The protections of Iceberg commits: each mutant takes one away, and its killer must notice."""

from __future__ import annotations

from tests.mutants.killers import Mutant, alone, model

OWN = alone("iceberg/test_protocol.py")
"""Scenarios of single commits on a SQLite catalog; a mutant says which of them must fail."""
MERGING = alone("iceberg/test_merging.py")
BRANCHES = alone("iceberg/test_branches.py")
PROPERTIES = "iceberg/branch_properties.py"
SWAP, APPEND = "protocol/iceberg", "iceberg/write/append.py"
REQUEST = "iceberg/catalog/commit_request.py"
CLEAN_UP = (
    (
        "    raise undecided(swap, outcome, accepted or in_doubt or unseen)\n",
        (
            "    from safewrite.protocol.effects import Delete\n"
            "    for path in change.written:\n        yield Delete(path)\n"
            "    raise undecided(swap, outcome, accepted or in_doubt or unseen)\n"
        ),
    ),
)

ICEBERG_MUTANTS = (
    Mutant(
        "M14",
        "the files of a change in doubt",
        SWAP,
        CLEAN_UP,
        model("iceberg-two", 2),
        "unreadable:",
    ),
    Mutant(
        "M14-late",
        "the same, in a table's own files",
        SWAP,
        CLEAN_UP,
        OWN,
        "test_a_commit_in_doubt_may_land_later_and_is_whole",
    ),
    Mutant(
        "M15",
        "the version id in every update of a Glue table",
        "iceberg/catalog/glue.py",
        (('        if not params.get("VersionId"):\n', "        if False:\n"),),
        alone("iceberg/test_guard.py"),
        "test_an_update_without_a_version_id_is_not_sent",
    ),
    Mutant(
        "M16",
        "planning anew on a new base",
        "iceberg/write/overwrite.py",
        (
            (
                "        yield from self._plan(head)\n        kept",
                "        if not self.attempt:\n            yield from self._plan(head)\n        kept",
            ),
        ),
        OWN,
        "test_an_overwrite_is_planned_anew_on_a_rivals_snapshot",
    ),
    Mutant(
        "M28",
        "the error when all attempts are used up",
        SWAP,
        (
            (
                "        yield from state.turn.close()\n        share = state.share\n",
                "        return Swapped(head, 0, 0, already=True, contended=True)\n        share = state.share\n",
            ),
        ),
        OWN,
        "test_giving_up_is_an_error",
    ),
    Mutant(
        "no-verify",
        "the look after an acceptance",
        SWAP,
        (
            (
                "        looked, *closed = yield from _look(accepted, due)\n",
                (
                    "        if accepted:\n            return SettledChange(True, change.base)\n"
                    "        looked, *closed = yield from _look(accepted, due)\n"
                ),
            ),
        ),
        OWN,
        "test_an_accepted_commit_that_was_set_over_is_an_alarm",
    ),
    Mutant(
        "no-ancestor",
        "that a snapshot must be in the branch's history",
        "iceberg/catalog/commit_request.py",
        (("        return head.is_current(self.snapshot_ids[-1])\n", "        return True\n"),),
        OWN,
        "test_a_commit_that_was_rolled_back_before_its_ack_is_not_acked",
    ),
    Mutant(
        "no-account",
        "the account of expired snapshots in a verdict",
        SWAP,
        (("    if change.accounted_in(head):\n", "    if True:\n"),),
        model("iceberg-expire", 1),
        "alarm:",
    ),
    Mutant(
        "no-account-between",
        "the account of what another attempt did between two looks",
        SWAP,
        (("    if found is not None or head.accounts_since(seen):\n", "    if True:\n"),),
        OWN,
        "test_another_attempt_that_was_expired_between_two_looks_is_found",
    ),
    Mutant(
        "no-doubt",
        "the doubt after a conflict that no look explained",
        SWAP,
        (("accepted or in_doubt or unseen)", "accepted or in_doubt)"),),
        OWN,
        "test_a_conflict_after_which_nobody_could_look_is_in_doubt",
    ),
    Mutant(
        "no-read-back",
        "the look after a lost answer",
        SWAP,
        (
            (
                "        if isinstance(outcome, Exists | Failed) and not (in_doubt or unseen) and isinstance(looked, Ok):\n",
                "        if isinstance(outcome, Failed | Unknown):\n            raise unanswered(swap, outcome)\n        if False:\n",
            ),
        ),
        model("iceberg-two", 1),
        "zombie:",
    ),
    Mutant(
        "own-conflict",
        "own-commit detection after a conflict",
        SWAP,
        (("    if change.landed_in(head):\n        if not", "    if False:\n        if not"),),
        model("iceberg-two", 1),
        "alarm:",
    ),
    Mutant(
        "turn",
        "the end of a turn after a lost answer",
        SWAP,
        (
            (
                "            if not settled.closed:\n                yield from state.close()\n",
                "",
            ),
        ),
        OWN,
        "test_the_turn_in_the_queue_ends_with_a_commit_whose_answer_was_lost",
    ),
    Mutant(
        "key",
        "the key in the commit itself",
        "iceberg/write/summary.py",
        (("{KEY: self.key, FINGERPRINT", "{FINGERPRINT"),),
        OWN,
        "test_the_key_is_in_the_very_commit",
    ),
    Mutant(
        "snapshot-id",
        "one snapshot id for all attempts",
        APPEND,
        (
            (
                "        self.bound = head\n",
                "        self.bound = head\n        self.snapshot_id = table_of(head).metadata.new_snapshot_id()\n",
            ),
        ),
        OWN,
        "test_a_write_keeps_one_snapshot_id_through_all_attempts",
    ),
    Mutant(
        "requirement",
        "that a commit requires its base",
        APPEND,
        (
            (
                '        AssertRefSnapshotId.model_validate({"ref": branch, "snapshot-id": head.current}),\n',
                "",
            ),
        ),
        OWN,
        "test_a_rival_costs_an_attempt_and_no_rows_where_no_sequence_number_tells",
    ),
    Mutant(
        "time",
        "the order of snapshots in time",
        "iceberg/data/manifests.py",
        (("max(now_ms, metadata.last_updated_ms)", "now_ms"),),
        OWN,
        "test_time_in_the_table_never_goes_back",
    ),
    Mutant(
        "M27-iceberg",
        "the look at the data files before the commit",
        "iceberg/write/staging.py",
        (
            (
                "        unproved = [mark for put, mark in self._left if put.path not in proved]\n",
                "        unproved: list[Mark] = []\n",
            ),
        ),
        OWN,
        "test_a_data_file_that_was_damaged_before_the_commit_is_noticed",
    ),
    # --- drawn by outsiders, and once noticed by nothing ---
    Mutant(
        "changed-schema",
        "the look at the schema of a new base",
        APPEND,
        (("        or then.current_schema_id != now.current_schema_id\n", ""),),
        OWN,
        "test_files_made_for_another_schema_or_layout_are_not_committed",
    ),
    Mutant(
        "changed-partitioning",
        "the look at the partitioning of a new base",
        APPEND,
        (("        or then.default_spec_id != now.default_spec_id\n", ""),),
        OWN,
        "test_files_made_for_another_schema_or_layout_are_not_committed",
    ),
    Mutant(
        "changed-sort-order",
        "the look at the sort order of a new base",
        APPEND,
        (("        or then.default_sort_order_id != now.default_sort_order_id\n", ""),),
        OWN,
        "test_files_made_for_another_schema_or_layout_are_not_committed",
    ),
    Mutant(
        "mark-landed",
        "the comparison of marks where a change might have landed",
        REQUEST,
        (("return head.properties.get(MARK) == self.mark\n", "return MARK in head.properties\n"),),
        OWN,
        "test_a_change_without_a_snapshot_is_known_by_its_own_mark",
    ),
    Mutant(
        "mark-base",
        "the comparison of marks where a change wants to land",
        REQUEST,
        ((" and head.properties.get(MARK) == self.base.properties.get(MARK)", ""),),
        OWN,
        "test_a_change_without_a_snapshot_is_known_by_its_own_mark",
    ),
    Mutant(
        "delete-manifests",
        "the manifests of delete files, in a rewrite",
        "iceberg/write/overwrite.py",
        (("        kept += [m for m in manifests if m.content != ManifestContent.DATA]\n", ""),),
        OWN,
        "test_delete_files_of_others_outlive_a_rewrite",
    ),
    Mutant(
        "signature-of-a-removal",
        "the snapshot by which a removal is signed",
        "iceberg/write/overwrite.py",
        (
            (
                "self.snapshot_id if status == ManifestEntryStatus.DELETED else one.snapshot_id",
                "one.snapshot_id",
            ),
        ),
        OWN,
        "test_a_removal_is_signed_by_the_snapshot_that_makes_it",
    ),
    Mutant(
        "requires-schema",
        "that a commit requires its schema",
        APPEND,
        (
            (
                '        AssertCurrentSchemaId.model_validate({"current-schema-id": metadata.current_schema_id}),\n',
                "",
            ),
        ),
        OWN,
        "test_a_late_commit_is_refused_by_a_table_with_another_schema",
    ),
    Mutant(
        "requires-table",
        "that a commit requires its table",
        APPEND,
        (("        AssertTableUUID(uuid=metadata.table_uuid),\n", ""),),
        OWN,
        "test_a_late_commit_is_refused_by_a_table_that_was_made_again_under_its_name",
    ),
    Mutant(
        "merged-gone",
        "that all that went into a merged manifest is in the base still",
        "iceberg/write/merging.py",
        (("            if there.issuperset(paths):\n", "            if not there.isdisjoint(paths):\n"),),
        MERGING,
        "test_a_merged_manifest_is_left_out_where_a_rival_took_some_of_it_away",
    ),
    Mutant(
        "merged-sequence",
        "the sequence numbers of entries that are merged",
        "iceberg/write/merging.py",
        (
            (
                "        entry(existing, one.snapshot_id, one.data_file, one.sequence_number, one.file_sequence_number)\n",
                "        entry(existing, one.snapshot_id, one.data_file, 7, 7)\n",
            ),
        ),
        MERGING,
        "test_a_commit_merges_the_manifests_of_its_base_when_they_are_many",
    ),
    Mutant(
        "known-table",
        "the table's id, where manifests that are known are looked up",
        "iceberg/data/known_manifests.py",
        (
            (
                "        return self._manifests.get(_key(table_id, manifest))\n",
                "        return next(iter(self), None)\n",
            ),
        ),
        MERGING,
        "test_changes_are_applied_right_across_many_merges",
    ),
    Mutant(
        "attempts-sequence",
        "a copy of each manifest for each attempt's list",
        "iceberg/data/manifests.py",
        (("[ManifestFile(*one._data) for one in manifests]", "list(manifests)"),),
        MERGING,
        "test_the_manifest_of_a_later_attempt_is_as_new_as_its_snapshot",
    ),
    Mutant(
        "null-lists",
        "NULL in nested columns of files",
        "iceberg/data/nested.py",
        (
            (
                "        return pa.ListArray.from_arrays(_offsets(found), element, type=made, mask=pc.is_null(found))\n",
                "        return pa.ListArray.from_arrays(_offsets(found), element, type=made)\n",
            ),
        ),
        alone("iceberg/test_nested_rest.py::test_rows_that_stay_keep_their_nested_values"),
        "test_rows_that_stay_keep_their_nested_values",
    ),
    Mutant(
        "first-write",
        "the check of a first write before its table is made",
        "iceberg/write/plans.py",
        (("            self.rehearse(data, operation, made.head)\n", "            pass\n"),),
        alone(
            "test_first_writes.py::test_the_object_of_a_refused_first_write_makes_the_table_by_the_next_one"
        ),
        "test_the_object_of_a_refused_first_write_makes_the_table_by_the_next_one",
    ),
    Mutant(
        "cut-location",
        "the location of each table version",
        "iceberg/features.py",
        (("    locations.check(table.metadata, _named(table))\n", ""),),
        alone("iceberg/test_locations.py::test_a_data_path_that_is_cut_later_is_refused_by_the_next_write"),
        "test_a_data_path_that_is_cut_later_is_refused_by_the_next_write",
    ),
    Mutant(
        "branch-memory",
        "the memory that a branch has of its own",
        PROPERTIES,
        (("    return {prefix * tells_of_rows(name) + name: text", "    return {name: text"),),
        BRANCHES,
        "test_keys_that_were_deleted_on_a_branch_are_remembered_on_it_alone",
    ),
    Mutant(
        "branch-nearest",
        "that the nearest set counts where another engine moved a branch",
        PROPERTIES,
        (("    return min(found)[-1]\n", "    return own\n"),),
        BRANCHES,
        "test_another_engines_fast_forward_brings_what_counts_on_the_branch_too",
    ),
    Mutant(
        "branch-led",
        "that a branch which was moved here gets its set before it changes",
        PROPERTIES,
        (("        for name, at in led(metadata, branch).items()\n", "        for name, at in ()\n"),),
        BRANCHES,
        "test_another_engines_fast_forward_brings_what_counts_on_the_branch_too",
    ),
    Mutant(
        "forward-requires",
        "where the main branch must be for a fast-forward",
        "iceberg/branches.py",
        (("{MAIN: head.current, name: audited}", "{name: audited}"),),
        BRANCHES,
        "test_what_another_writer_puts_on_the_main_branch_just_before_the_commit_stays",
    ),
)
