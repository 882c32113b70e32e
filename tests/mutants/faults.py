"""The protections that must not be missing: each fault takes one away, and its killer must notice.

A fault stands for a row of docs/failure-modes.md, by its id.  `make mutants` draws many more, by machine.
"""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from safewrite.changes.meaning.decide import ChangeOp
from safewrite.changes.meaning.row_vectors import bitmap
from safewrite.delta.log.actions import file_key
from safewrite.delta.write.file_changes import FileRewrite, FileVerdict
from safewrite.errors import CommitUnknownError, ForeignWriterError, InternalError, RetriesExhaustedError
from safewrite.frames.predicate import Span, truths
from safewrite.iceberg.data.lineage import kept_schema
from safewrite.iceberg.data.schema import arrow_schema
from safewrite.iceberg.expiry import Kept, expired
from safewrite.iceberg.write.row_files import mark_of
from safewrite.medallion.files.file_versions import last_of
from safewrite.protocol.delta.candidate import Landed
from safewrite.protocol.effects import (
    Busy,
    CompleteEntry,
    Delete,
    Effect,
    Exists,
    Failed,
    Get,
    Missing,
    Ok,
    Put,
    PutIfAbsent,
    Unknown,
)
from safewrite.protocol.iceberg.settle import SettledChange
from tests.mutants.killers import model, sharing
from tests.mutants.seams import FAULTS, Fault, fault, meddled, no_steps

OWN = "mutants/test_protections.py::"
LOG, PLACING, CATALOG = (f"protocol/test_{name}.py::" for name in ("log", "placing", "catalog"))
DECIDE, TABLES = "changes/test_decide.py::", "changes/test_tables.py::"
ICEBERG, SHARED = "iceberg/test_protocol.py::", "test_shared_commits.py::"
BESIDE = "changes/test_where_beside_rivals.py::"
RIVALS = "changes/test_rivals.py::"
REBASED = "changes/test_rebase.py::test_"
CONFORM, SOURCE = "frames/test_conform.py::", "frames/test_source.py::"


def named(name: str) -> Fault:
    """The fault that is called so."""
    return next(one for one in FAULTS if str(one) == name)


def without_condition(effect: Effect) -> Effect:
    """A create that replaces what is there."""
    return Put(effect.path, effect.body, name=effect.name) if isinstance(effect, PutIfAbsent) else effect


# --- A: Delta's commit protocol ----------------------------------------------------------------------
@fault("A1", "stores.s3:S3Objects.put_if_absent", OWN + "test_a_second_create_of_a_commit_file_is_refused")
def a_create_has_no_condition(_: Any, self: Any, path: str, body: bytes) -> Any:
    return self.put(path, body)


@fault(
    "A2", "protocol.delta.commit:_put_commit", PLACING + "test_a_version_is_ours_once_our_bytes_are_read_back"
)
def an_own_commit_is_taken_for_anothers(was: Any, *args: Any) -> Any:
    return meddled(was(*args), lambda one: Ok(b"other") if one.name == "commit.read_back" else one)


@fault(
    "A2",
    "protocol.delta.place:place",
    "test_place.py::test_another_commit_at_the_version_is_left_and_no_later_version_is_tried",
)
def an_engine_is_told_that_anothers_commit_is_its_own(was: Any, *args: Any, **kwargs: Any) -> Any:
    return replace((yield from was(*args, **kwargs)), landed=True)


@fault(
    "A3",
    "protocol.delta.claim:claim",
    LOG + "test_who_holds_a_version_is_read_after_any_answer_but_a_clear_one",
)
def an_own_claim_is_taken_for_anothers(was: Any, entry: Any, *args: Any) -> Any:
    other = Ok(replace(entry, temp_path="other"))
    return meddled(was(entry, *args), lambda one: other if one.name == "commit.get_entry" else one)


@fault(
    "A4",
    "protocol.delta.commit:try_version",
    PLACING + "test_a_temp_file_that_no_entry_names_does_not_stay_in_another_table",
)
def a_temp_file_stays_in_another_table(was: Any, *args: Any) -> Any:
    return meddled(was(*args), lambda one: Ok() if isinstance(one, Delete) else one)


@fault("A5", "protocol.delta.claim:finish", LOG + "test_an_entry_of_this_table_is_finished_whoever_made_it")
def a_claim_that_was_left_is_not_finished(*_: Any) -> Any:
    return no_steps()


@fault("A6", "protocol.delta.catch_up:catch_up", LOG + "test_an_open_entry_whose_commit_stands_is_closed")
def an_entry_stays_open(was: Any, *args: Any) -> Any:
    return meddled(was(*args), lambda one: Ok() if isinstance(one, CompleteEntry) else one)


@fault(
    "A7", "protocol.delta.claim:_must_exist", OWN + "test_an_entry_without_temp_file_and_commit_is_reported"
)
def a_missing_temp_file_counts_as_copied(*_: Any) -> Any:
    return no_steps()


@fault("A8", "protocol.delta.claim:finish", model("put", 1), "replaced:")
def a_repair_puts_over_a_commit(was: Any, *args: Any) -> Any:
    return meddled(was(*args), without_condition)


@fault("A9", "protocol.delta.claim:complete", LOG + "test_an_entry_outlives_two_days")
def an_entry_expires_at_once(was: Any, entry: Any) -> Any:
    return replace(was(entry), entry_ttl_s=0)


@fault("A10", "stores.aws:ServerClock.observe", OWN + "test_a_wrong_clock_is_put_right_by_the_server")
def the_writers_own_clock_counts(*_: Any) -> None:
    return


@fault(
    "A11",
    "protocol.delta.commit:_verify",
    OWN + "test_a_commit_that_was_replaced_before_its_ack_is_not_acked",
)
def a_commit_is_acked_unseen(*_: Any) -> Any:
    return no_steps()


@fault(
    "A12", "protocol.delta.catch_up:_some_unclaimed", LOG + "test_a_version_that_nobody_claimed_is_noticed"
)
def writers_without_the_lock_table_are_not_noticed(*_: Any) -> bool:
    return False


@fault(
    "A13",
    "stores.dynamodb:DynamoDBLocks.put_entry_if_absent",
    OWN + "test_a_second_claim_of_a_version_is_refused",
)
def a_claim_has_no_condition(was: Any, self: Any, entry: Any) -> Any:
    def put_item(*, ConditionExpression: str = "", **given: Any) -> Any:  # noqa: N803
        return client.put_item(**given)

    client, self.client = self.client, SimpleNamespace(put_item=put_item)
    try:
        return was(self, entry)
    finally:
        self.client = client


@fault("A14", "stores.probe:_judge", OWN + "test_a_lock_table_that_ignores_conditions_is_refused")
def a_store_that_ignores_conditions_is_taken(*_: Any) -> None:
    return


@fault(
    "A17",
    "protocol.delta.catch_up:_prove",
    LOG + "test_a_listing_without_the_version_that_was_seen_is_another_log",
)
def another_log_is_taken_for_this_one(*_: Any) -> Any:
    return no_steps()


@fault("A18", "stores.aws:classify_error", OWN + "test_409_means_ask_again")
def a_409_means_exists(was: Any, *args: Any, **kwargs: Any) -> Any:
    outcome = was(*args, **kwargs)
    return Exists() if isinstance(outcome, Busy) else outcome


@fault("A19", "delta.log.actions:_action", "delta/test_state.py::test_a_torn_entry_is_an_error")
def a_torn_line_is_passed_over(was: Any, *args: Any) -> Any:
    try:
        return was(*args)
    except Exception:  # noqa: BLE001 - whatever it says
        return {}


@fault("A20", "protocol.iceberg.settle:settle_creation", CATALOG + "test_a_table_is_ours_if_its_id_is")
def another_creators_table_is_taken_for_ours(was: Any, *args: Any) -> Any:
    settled = yield from was(*args)
    return replace(settled, landed=True)


STAMPED, ROW_IDS = "delta/test_stamped.py::test_", "delta/test_row_ids.py::test_"


@fault("A21", "delta.write.stamped:Stamper._after", STAMPED + "a_try_after_a_rival_is_stamped_anew")
def a_try_keeps_the_stamps_of_the_one_before(was: Any, self: Any, *args: Any) -> Any:
    return self.__dict__.setdefault("first", was(self, *args))


@fault("A21", "delta.write.stamped:Stamper._after", model("stamps-objects", 0), "stale:")
def a_writer_keeps_a_stale_stamp(was: Any, self: Any, *args: Any) -> Any:
    return self.__dict__.setdefault("first", was(self, *args))


@fault("A21", "delta.write.members:summed_up", STAMPED + "a_try_after_a_rival_is_stamped_anew")
def a_summary_does_not_tell_the_stamps_of_a_rival(was: Any, *args: Any) -> Any:
    commit = was(*args)
    return replace(commit, actions=tuple(one for one in commit.actions if "domainMetadata" not in one))


@fault("A21", "delta.data.rows:filled", ROW_IDS + "every_verb_keeps_ids_and_versions")
def rows_that_are_written_again_get_other_ids(_: Any, table: Any, add: Any, asked: Any, *args: Any) -> Any:
    return table


@fault(
    "A21",
    "changes.tasks.abc:AppliedBatch.comes_as",
    ROW_IDS + "a_key_that_a_rival_deleted_and_inserted_again_is_another_row",
)
def files_with_old_ids_serve_the_next_plan(_: Any, self: Any, other: Any) -> Any:
    return self.outcome.settled.has_rows_of(other.outcome.settled)


# --- B: upkeep of the log ----------------------------------------------------------------------------
@fault("B1", "protocol.staging:check", OWN + "test_a_data_file_that_was_removed_before_the_commit_is_noticed")
def files_are_not_looked_at_before_the_commit(*_: Any) -> Any:
    return no_steps([])


@fault(
    "B2",
    "delta.log.checkpoint:write_checkpoint",
    "delta/test_checkpoint.py::test_a_checkpoint_that_stands_is_never_replaced",
)
def a_checkpoint_is_put_over_another(was: Any, *args: Any, **kwargs: Any) -> Any:
    return meddled(was(*args, **kwargs), without_condition)


@fault(
    "B3",
    "delta.log.checkpoint:_point_at",
    "delta/test_checkpoint.py::test_the_hint_never_moves_back_and_garbage_in_it_is_replaced",
)
def the_hint_moves_back(was: Any, *args: Any) -> Any:
    return meddled(was(*args), lambda one: Missing() if isinstance(one, Get) else one)


@fault("B4", "table.regrouping:Regrouped.moved", model("compact-objects", 0), "revived:")
def rows_that_were_marked_meanwhile_are_not_looked_for_in_the_new_file(*_: Any) -> Any:
    return {}


@fault("B4", "table.regrouping:Regrouping.make", model("compact-rewritten", 0), "revived:")
def a_group_goes_on_whose_file_others_took(was: Any, self: Any, live: Any, *args: Any) -> Any:
    for number, one in self.made.items():
        for file, taken in zip(self.groups[number].files, one.taken, strict=True):
            live.setdefault(file.name, taken)
    return was(self, live, *args)


@fault(
    "B4",
    "table.regrouping:Regrouped.moved",
    "upkeep/test_delta.py::test_rows_are_found_again_in_each_of_the_files_of_a_group",
)
def rows_that_were_marked_meanwhile_are_marked_in_the_next_file(was: Any, self: Any, gone: Any) -> Any:
    return {(number + 1) % len(self.sizes): places for number, places in was(self, gone).items()}


@fault(
    "B4",
    "delta.write.compaction:CompactionTransaction._stay",
    "upkeep/test_delta.py::test_rows_are_found_again_in_each_of_the_files_of_a_group",
)
def the_vectors_of_rivals_take_nothing(was: Any, self: Any, files: Any) -> Any:
    return [np.ones_like(one) for one in (yield from was(self, files))]


@fault(
    "B4",
    "iceberg.write.compaction:CompactionPlan._follow",
    "upkeep/test_iceberg.py::test_a_second_rival_of_one_file_leaves_it_one_vector",
)
def rows_that_went_before_are_marked_again(was: Any, self: Any, *args: Any) -> Any:
    before = {number: one.marks for number, one in self.work.followed.items()}
    yield from was(self, *args)
    for number, one in self.work.followed.items():
        self.work.followed[number] = replace(one, marks=(*before.get(number, ()), *one.marks))


@fault(
    "B4",
    "delta.write.compaction:CompactionTransaction.check_conflict",
    "upkeep/test_delta.py::test_files_of_a_group_that_was_left_out_before_any_try_are_gone",
)
def a_compaction_does_not_look_at_what_others_took(*_: Any) -> Any:
    return None


@fault(
    "B4",
    "iceberg.write.compaction:CompactionPlan._plan",
    "upkeep/test_iceberg.py::test_a_row_that_was_deleted_meanwhile_does_not_come_back",
)
def a_compaction_keeps_its_first_plan(was: Any, self: Any, *args: Any) -> Any:
    return no_steps() if self.attempt else was(self, *args)


@fault(
    "E6",
    "table.regrouping:PutTogether.__call__",
    "upkeep/test_by_tasks.py::test_a_task_that_ran_again_has_its_files_named_once",
)
def all_tries_of_a_group_write_files_of_one_name(was: Any, self: Any, given: Any, at: Any) -> Any:
    return was(self, given, replace(at, number=0))


OLD_LOG = "upkeep/test_old_log.py::"


@fault(
    "B7",
    "delta.log.cleanup:kept_ms",
    OLD_LOG + "test_old_commits_and_checkpoints_go_and_every_later_version_reads_as_before",
)
def a_log_is_kept_for_a_second(*_: Any) -> Any:
    return 1000


@fault(
    "B3",
    "delta.log.cleanup:_hinted",
    OLD_LOG + "test_a_maintainer_killed_between_its_checkpoint_and_the_look_up_of_it_leaves_nothing_wrong",
)
def the_checkpoint_that_readers_are_told_of_may_go(*_: Any) -> Any:
    return no_steps(2**60)


@fault("B7", "delta.log.cleanup:_stands", OLD_LOG + "test_a_log_whose_first_checkpoint_cannot_be_read_stays")
def the_first_checkpoint_is_not_read(*_: Any) -> Any:
    return no_steps(True)


@fault(
    "B7",
    "delta.log.checkpoint:is_same_log",
    OLD_LOG + "test_the_log_of_a_table_that_is_created_again_meanwhile_stays",
)
def the_log_is_not_looked_at_before_its_files_go(*_: Any) -> Any:
    return no_steps(True)


OLD_SNAPSHOTS = "upkeep/test_old_snapshots.py::"


@fault(
    "B7",
    "iceberg.expiry:kept_by",
    OLD_SNAPSHOTS + "test_old_snapshots_go_and_rows_keys_tags_and_later_versions_stay",
)
def snapshots_are_kept_for_no_time(*_: Any) -> Any:
    return Kept(0)


@fault("B7", "iceberg.expiry:expired", OLD_SNAPSHOTS + "test_nothing_goes_that_a_ref_names_or_that_is_young")
def snapshots_of_tags_and_branches_expire(was: Any, snapshots: Any, refs: Any, *args: Any) -> Any:
    return was(snapshots, {}, *args)


CLOCKS = "upkeep/test_clocks.py::"


@fault(
    "B7",
    "iceberg.expiry:really_old",
    CLOCKS + "test_no_snapshot_goes_that_is_younger_than_it_is_kept_by_any_one_clock",
)
def the_store_is_not_asked_how_old_snapshots_are(_: Any, *given: Any) -> Any:
    return no_steps(expired(*given[:-1]))


@fault(
    "B7", "iceberg.expiry:_is_written", OLD_SNAPSHOTS + "test_nothing_goes_that_a_ref_names_or_that_is_young"
)
def a_compaction_says_what_time_it_is(*_: Any) -> Any:
    return True


@fault(
    "B7",
    "delta.log.checkpoint_file:_oldest_ms",
    CLOCKS + "test_a_writer_whose_clock_is_a_year_ahead_makes_no_tombstone_go",
)
def the_newest_time_of_the_log_is_believed(was: Any, files: Any, *_: Any) -> Any:
    return was(files, files.newest_ms)


@fault(
    "B7",
    "delta.log.cleanup:wall_ms",
    CLOCKS + "test_no_commit_goes_because_the_newest_one_has_a_time_that_is_to_come",
)
def no_clock_of_the_maintainer_bounds_the_stores(*_: Any) -> Any:
    return no_steps(2**60)


@fault(
    "B7", "upkeep.unused:wall_ms", CLOCKS + "test_a_file_server_whose_clock_is_set_ahead_makes_no_file_old"
)
def what_time_it_is_a_file_server_says_alone(*_: Any) -> Any:
    return no_steps(2**60)


UNUSED, HISTORIES = (
    "upkeep/test_unused_files.py::",
    "upkeep/test_histories.py::test_nothing_goes_that_is_needed",
)


@fault("B7", "upkeep.unused:_within", HISTORIES)
def files_of_a_running_write_count_as_left(was: Any, *args: Any) -> Any:
    found = was(*args)
    return found if "_safewrite/" in found.path else replace(found, modified_ms=0)


@fault("B7", "upkeep.unused:_within", HISTORIES)
def writes_that_wait_in_the_queue_are_passed_over(was: Any, *args: Any) -> Any:
    found = was(*args)
    return replace(found, path=found.path.replace("_safewrite/queue/", "_safewrite/passed/"))


@fault("B7", "delta.needed_files:_names", HISTORIES)
def no_version_of_a_delta_table_needs_a_file(*_: Any) -> Any:
    return ()


@fault(
    "B7",
    "iceberg.needed_files:_texts",
    UNUSED + "test_files_of_snapshots_that_expired_go_and_those_of_a_tag_stay",
)
def what_iceberg_metadata_names_is_not_needed(*_: Any) -> Any:
    return ()


@fault(
    "B7",
    "iceberg.needed_files:_others_metadata",
    UNUSED + "test_a_folder_with_metadata_of_another_table_is_left_alone",
)
def a_folder_is_of_one_iceberg_table(*_: Any) -> Any:
    return no_steps({})


@fault(
    "B7",
    "iceberg.needed_files:second_lines",
    UNUSED + "test_a_table_that_was_registered_twice_keeps_the_files_of_both",
)
def what_did_not_lead_to_the_newest_metadata_is_not_needed(*_: Any) -> Any:
    return {}


@fault("B7", "upkeep.unused:inner_tables", UNUSED + "test_a_table_within_the_folder_keeps_its_files")
def a_folder_has_no_table_within(*_: Any) -> Any:
    return ()


@fault(
    "B6", "delta.log.features:_refuse", "delta/test_features.py::test_an_unknown_feature_is_refused_by_name"
)
def a_feature_that_is_not_known_is_passed_over(*_: Any) -> None:
    return


@fault(
    "B6",
    "frames.row_rules:held",
    "delta/test_row_rules.py::test_a_row_that_breaks_a_constraint_is_refused_before_anything_is_uploaded",
)
def null_keeps_a_constraint(_: Any, predicate: Any, table: pa.Table) -> Any:
    return pc.fill_null(truths(predicate, table), True)


# --- C: Iceberg catalogs -----------------------------------------------------------------------------
@fault("C1", "protocol.iceberg.settle:settle", ICEBERG + "test_a_commit_in_doubt_may_land_later_and_is_whole")
def files_of_a_commit_in_doubt_are_cleaned_up(was: Any, change: Any, *args: Any) -> Any:
    try:
        return (yield from was(change, *args))
    except CommitUnknownError:
        for path in change.written:
            yield Delete(path)
        raise


@fault(
    "C2",
    "protocol.iceberg.settle:_judge",
    CATALOG + "test_a_change_that_nothing_is_known_of_is_asked_for_again",
)
def a_change_that_is_not_there_yet_counts_as_lost(was: Any, change: Any, looked: Any, *args: Any) -> Any:
    settled = yield from was(change, looked, *args)
    return SettledChange(False, looked.value) if settled is None and isinstance(looked, Ok) else settled


@fault(
    "C3",
    "protocol.iceberg.settle:_judge",
    CATALOG + "test_a_change_that_the_table_shows_has_landed_whatever_the_answer_was",
)
def an_own_snapshot_is_not_recognised(was: Any, change: Any, looked: Any, accepted: bool, *args: Any) -> Any:
    return was(change if accepted else Blind(change), looked, accepted, *args)


class Blind:
    """A change that does not know its own snapshots."""

    def __init__(self, change: Any) -> None:
        self.change = change

    def __getattr__(self, name: str) -> Any:
        return getattr(self.change, name)

    def landed_in(self, _: Any) -> bool:
        return False


@fault(
    "C3",
    "iceberg.write.summary:find",
    ICEBERG + "test_another_attempt_that_was_expired_between_two_looks_is_found",
)
def an_own_key_is_not_found_in_the_table(*_: Any) -> None:
    return


@fault(
    "C4",
    "iceberg.catalog.glue:_Entries.complete",
    "iceberg/test_guard.py::test_an_update_without_a_version_id_is_not_sent",
)
def glue_is_updated_without_a_version_id(*_: Any, **__: Any) -> None:
    return


@fault(
    "C5", "protocol.iceberg.settle:settle", ICEBERG + "test_an_accepted_commit_that_was_set_over_is_an_alarm"
)
def an_acceptance_is_believed(was: Any, change: Any, *args: Any) -> Any:
    try:
        return (yield from was(change, *args))
    except ForeignWriterError:
        return SettledChange(True, change.base)


@fault("C8", "protocol.delta.commit:commit", OWN + "test_giving_up_is_an_error")
def giving_up_is_swallowed(was: Any, candidate: Any, seen: int, **kwargs: Any) -> Any:
    try:
        return (yield from was(candidate, seen, **kwargs))
    except RetriesExhaustedError:
        return Landed(seen, 0, already=False, contended=True)


@fault("C6", "iceberg.connect:_refuse_unguarded", "test_slips.py::test_a_catalog_of_files_alone_is_refused")
def a_catalog_of_files_alone_is_taken(*_: Any) -> None:
    return


@fault(
    "C9",
    "iceberg.write.overwrite:ReplacePlan._plan",
    ICEBERG + "test_an_overwrite_is_planned_anew_on_a_rivals_snapshot",
)
def an_overwrite_keeps_its_first_plan(was: Any, self: Any, *args: Any) -> Any:
    return no_steps() if self.attempt else was(self, *args)


@fault(
    "C9",
    "delta.write.matching_files:MatchingFiles._followed",
    BESIDE + "test_any_rivals_before_each_try_leave_what_one_write_after_another_would",
)
def what_was_found_in_a_file_is_kept_without_its_vector(_: Any, self: Any, before: Any, add: Any) -> Any:
    return before.goes


@fault(
    "C9",
    "delta.write.matching_files:MatchingFiles._undecided",
    BESIDE + "test_any_rivals_before_each_try_leave_what_one_write_after_another_would",
)
def a_file_that_came_is_not_looked_into(was: Any, self: Any, *args: Any) -> Any:
    is_first, undecided = not self.made, was(self, *args)
    if not is_first:
        self.made |= dict.fromkeys(undecided, FileRewrite(FileVerdict.KEEP))
    return undecided if is_first else []


@fault(
    "C10", "iceberg.data.datafiles:encode", "iceberg/test_datafiles.py::test_paths_of_two_writes_never_meet"
)
def two_writes_name_one_file(was: Any, *args: Any, write_id: str, **kwargs: Any) -> Any:
    return was(*args, write_id="w", **kwargs)


V3 = "iceberg/test_v3_appends.py::test_"
_FIRST_ROW_IDS: dict[Any, int] = {}


@fault("C11", "iceberg.data.manifests_v3:next_row_id", V3 + "ids_are_given_again_with_each_try")
def a_try_keeps_the_row_ids_of_the_last_one(was: Any, metadata: Any) -> Any:
    return _FIRST_ROW_IDS.setdefault(metadata.table_uuid, was(metadata))


@fault("C11", "protocol.iceberg.numbers:given", model("iceberg-ids-sql", 0), "stuck:")
def a_snapshot_keeps_the_first_row_id_that_was_read_first(
    was: Any, last: int, next_row_id: int | None
) -> Any:
    return was(last, _FIRST_ROW_IDS.setdefault("model", 0 if next_row_id is None else next_row_id))


@fault("C11", "protocol.iceberg.numbers:given", model("iceberg-ids", 0), "stuck:")
def a_snapshot_keeps_the_sequence_number_that_was_read_first(
    was: Any, last: int, next_row_id: int | None
) -> Any:
    return was(_FIRST_ROW_IDS.setdefault("sequence", last), next_row_id)


@fault("C11", "iceberg.catalog.metadata_v3:check_numbers", V3 + "ids_are_given_again_with_each_try")
def numbers_that_another_branch_took_are_taken(*_: Any) -> None:
    return


@fault(
    "C11",
    "iceberg.catalog.planning:_listed",
    V3 + "an_upgraded_table_gives_its_old_rows_ids_with_the_first_commit_and_keeps_them",
)
def a_read_forgets_the_ids_that_the_list_says(_: Any, scan: Any, snapshot: Any) -> Any:
    return tuple(snapshot.manifests(scan.io))


V3_CHANGES = "iceberg/test_v3_changes.py::test_"


@fault(
    "C11",
    "iceberg.data.lineage:inherited",
    V3_CHANGES + "rows_that_a_delete_or_an_overwrite_leaves_keep_their_ids",
)
def a_row_that_moves_leaves_its_id_behind(_: Any, rows: Any, file: Any) -> Any:
    return rows


@fault(
    "C11",
    "iceberg.write.row_files:mark_of",
    V3_CHANGES + "changes_to_an_upgraded_table_do_not_pass_over_ids_that_a_rival_gives",
)
def ids_that_a_rival_gave_to_an_upgraded_table_are_passed_over(was: Any, task: Any) -> Any:
    return tuple(one for one in was(task) if not one.startswith("ids="))


@fault("C11", "iceberg.data.lineage:id_column", V3_CHANGES + "rows_that_change_by_key_keep_their_row_ids")
def a_row_that_changes_is_taken_for_a_new_one(*_: Any) -> None:
    return None


@fault(
    "C11",
    "iceberg.write.table_files:first_id",
    V3_CHANGES + "changes_to_an_upgraded_table_do_not_pass_over_ids_that_a_rival_gives",
)
def what_was_found_before_rows_had_ids_serves_when_they_have(*_: Any) -> None:
    return None


@fault("C11", "iceberg.write.delete_files:all_marked", V3_CHANGES + "a_vector_has_what_a_rivals_vector_takes")
def a_vector_forgets_what_the_rivals_takes(_: Any, head: Any, places: Any, live: Any) -> Any:
    return places


@fault("C11", "iceberg.write.delete_files:all_marked", model("unions-iceberg", 0), "revived:")
def a_vector_in_a_puffin_file_is_a_union_without_the_base(_: Any, head: Any, places: Any, live: Any) -> Any:
    return places


@fault("C11", "changes.lookup.candidate_rows:GoneRows.mark", model("unions-iceberg-sql", 0), "revived:")
def a_vector_that_was_made_on_another_base_serves(_: Any, self: Any, file: Any) -> Any:
    return file[0], self.cut


# --- D: pauses and turns -----------------------------------------------------------------------------
@fault(
    "D1",
    "protocol.ticket_queue:outlasted",
    "protocol/test_slow_plans.py::test_an_iceberg_plan_that_outlasted_its_turn_waits_for_another",
)
def a_turn_is_never_outlasted(*_: Any) -> bool:
    return False


@fault(
    "D2",
    "delta.write.waiting:is_there",
    SHARED + "test_a_member_that_stays_in_the_queue_is_never_carried_again",
)
def a_members_key_is_not_looked_for(*_: Any) -> bool:
    return False


@fault("D3", "delta.write.members:carried", SHARED + "test_a_leader_that_dies_at_any_step_is_succeeded")
def a_write_that_another_committed_is_not_found(*_: Any) -> Any:
    return {}


@fault(
    "D4",
    "protocol.delta.commit:commit",
    SHARED + "test_who_gives_up_leaves_the_queue_after_its_doubt_is_recorded",
)
def a_member_leaves_the_queue_before_its_doubt_is_recorded(was: Any, *args: Any, **kwargs: Any) -> Any:
    return was(*args, **{**kwargs, "doubting": None})


@fault(
    "D5",
    "protocol.sharing:in_doubt",
    SHARED + "test_who_gives_up_ends_in_doubt_for_a_leader_may_have_read_its_member",
)
def who_gives_up_says_that_nothing_landed(_: Any, __: Any, ___: Any, error: Exception, **____: Any) -> Any:
    return error


@fault(
    "D6",
    "table.writer:Writer._answering",
    "test_append_many.py::test_each_member_has_its_answer_in_the_order_of_the_call",
)
def one_bad_member_fails_them_all(_: Any, __: Any, ___: Any, step: Any) -> None:
    step()


@fault(
    "D8",
    "protocol.ticket_queue:wait_turn",
    "protocol/test_slow_plans.py::test_a_dead_holder_is_waited_for_as_long_as_it_asked_and_no_longer",
)
def a_dead_holder_is_waited_for_too_long(was: Any, limits: Any) -> Any:
    return was(replace(limits, lease_s=600.0))


@fault(
    "D8",
    "protocol.held_version:stand_aside",
    "protocol/test_slow_plans.py::test_who_holds_the_table_and_dies_is_waited_for_as_long_as_it_said_and_once",
)
def who_holds_the_table_and_died_is_waited_for_too_long(was: Any, held_s: float, *args: Any) -> Any:
    return was(10 * held_s, *args)


@fault(
    "D9",
    "protocol.held_version:Holds.lost",
    "protocol/test_slow_plans.py::"
    "test_a_plan_that_takes_longer_than_a_rival_leaves_holds_the_table_after_a_lost_try",
)
def who_loses_again_and_again_asks_nobody_to_wait(*_: Any) -> None:
    return


HELD = "changes/test_held_versions.py::test_"


@fault(
    "D9",
    "protocol.held_version:Holds.asked",
    HELD + "a_writer_that_lost_a_long_try_holds_the_table_and_lands_in_its_next",
)
def a_holder_waits_for_itself(was: Any, self: Any, version: Any = None) -> None:
    was(self)


@fault(
    "D9",
    "delta.write.transaction:saying",
    HELD + "who_dies_while_it_holds_the_table_costs_others_the_time_it_said_and_its_write_is_not_there",
)
def a_version_without_rows_is_taken_for_the_write(was: Any, plan: Any, commit_id: str, said: Any) -> Any:
    named = {"key": plan.write.key, "fingerprint": plan.write.fingerprint, "rows": 1, "files": 0}
    return was(plan, commit_id, {**said, "writes": [named]})


# --- E: Spark, streams and sources -------------------------------------------------------------------
@fault("E1", "delta.write.recalled:recall_txn", TABLES + "test_a_batch_of_a_stream_is_applied_once")
def a_batch_is_not_recognised(*_: Any) -> Any:
    return no_steps()


@fault(
    "E2",
    "protocol.keys:must_match",
    "protocol/test_keys.py::test_other_rows_under_a_key_are_refused_with_advice_that_fits",
)
def other_rows_under_a_key_are_a_repeat(*_: Any) -> None:
    return


@fault(
    "E9",
    "iceberg.write.earlier_writes:sequence_noted",
    "iceberg/test_expired_states.py::test_keys_of_snapshots_that_a_table_lost_are_written_again",
)
def a_ledger_answers_for_snapshots_that_the_table_never_had(*_: Any) -> None:
    return


@fault(
    "E9",
    "delta.format:check_same",
    "delta/test_doctor.py::test_keys_that_a_log_lost_and_got_again_are_no_finding",
)
def an_object_goes_on_in_a_log_that_lost_what_it_saw(*_: Any) -> None:
    return


@fault("E3", "delta.write.conflicts:check_batch", OWN + "test_two_writers_of_one_app_id_are_told")
def two_writers_may_use_one_app_id(*_: Any) -> None:
    return


@fault(
    "E4",
    "delta.log.features:check_retention",
    "delta/test_features.py::test_a_log_retention_shorter_than_the_horizon_is_refused",
)
def a_table_may_forget_keys_too_soon(*_: Any, **__: Any) -> None:
    return


@fault(
    "E6",
    "frames.task_files:check_files",
    "delta/test_tasks.py::test_a_union_that_lacks_or_doubles_something_is_refused",
)
def files_of_two_attempts_are_both_taken(*_: Any) -> None:
    return


@fault(
    "E7",
    "protocol.positions:must_stand",
    "test_positions.py::test_a_commit_moves_a_position_only_from_where_it_stands",
)
def a_position_moves_from_anywhere(*_: Any) -> None:
    return


@fault(
    "E8",
    "delta.log.segment:LogSegment.commits_after",
    "delta/test_state.py::test_a_hole_in_the_log_is_an_error",
)
def a_hole_in_the_log_is_passed_over(_: Any, self: Any, version: int, at: int | None) -> Any:
    return tuple(one for one in self.commits if one > version and (at is None or one <= at))


# --- G: stores in trouble ----------------------------------------------------------------------------
@fault(
    "G1",
    "protocol.ask:Patience.again",
    sharing(
        "stores/test_call_limit.py::test_a_storm_of_sixty_seconds_is_outlasted_within_the_time_of_the_call"
    ),
)
def a_throttled_request_is_given_up(was: Any, self: Any, *outcomes: Any) -> Any:
    return was(
        self, *(replace(one, throttled=False) if isinstance(one, Busy | Unknown) else one for one in outcomes)
    )


@fault(
    "G2",
    "stores.aws:classify_error",
    sharing("stores/test_call_limit.py::test_a_store_that_throttles_says_so"),
)
def a_503_is_an_error_for_good(was: Any, *args: Any, **kwargs: Any) -> Any:
    outcome = was(*args, **kwargs)
    return Failed(outcome.detail) if isinstance(outcome, Unknown) else outcome


@fault(
    "G4",
    "protocol.ask:ask",
    "protocol/test_asking.py::test_a_clear_answer_is_taken_and_others_are_asked_for_again",
)
def a_lost_answer_is_not_asked_for_again(was: Any, effect: Any, limits: Any) -> Any:
    return was(effect, replace(limits, asks=1))


@fault("G5", "stores.s3:S3Objects._write", OWN + "test_a_damaged_upload_is_not_believed")
def a_damaged_upload_is_believed(was: Any, *args: Any) -> Any:
    outcome = was(*args)
    return Ok() if isinstance(outcome, Busy | Unknown) else outcome


@fault("G10", "stores.aws:classify_error", OWN + "test_a_refused_read_does_not_mean_that_nothing_is_there")
def a_refused_read_means_missing(was: Any, *args: Any, **kwargs: Any) -> Any:
    outcome = was(*args, **kwargs)
    return Missing() if isinstance(outcome, Unknown) else outcome


# --- H: values that change silently ------------------------------------------------------------------
@fault(
    "H1",
    "frames.conform:_check_fields",
    CONFORM + "test_an_extra_column_is_refused_with_a_hint_at_its_spelling",
)
def a_column_that_the_table_lacks_is_dropped(*_: Any, **__: Any) -> None:
    return


@fault("H1", "values.field_defaults:default_of", V3 + "a_required_field_inside_of_a_struct_is_filled_too")
def values_of_fields_that_have_a_default_are_missing(*_: Any) -> None:
    return None


OPAQUE = "iceberg/test_opaque_columns.py::test_"


@fault(
    "H1",
    "iceberg.data.lineage:kept_columns",
    OPAQUE + "what_would_write_rows_again_is_refused_by_the_column_before_an_upload",
)
def values_of_a_type_that_is_not_known_stay_in_the_old_file(_: Any, metadata: Any) -> Any:
    return arrow_schema(kept_schema(metadata))


@fault(
    "H1",
    "iceberg.write.position_deletes:is_asked",
    OPAQUE + "rows_without_the_column_come_and_go_and_no_file_is_written_again",
)
def values_of_a_type_that_is_not_known_are_written_again(
    _: Any, metadata: Any, mode: str = "write.merge.mode"
) -> bool:
    return metadata.properties.get(mode) == "merge-on-read"


@fault("H2", "frames.conform:conform", CONFORM + "test_columns_go_by_name_and_not_by_position")
def columns_go_by_position(was: Any, piece: pa.Table, target: pa.Schema, **kwargs: Any) -> Any:
    return was(piece.rename_columns(target.names), target, **kwargs)


@fault("H3", "values.casts:_cast", CONFORM + "test_a_value_that_would_change_is_refused_by_row_and_value")
def casts_are_not_checked(_: Any, values: pa.Array, target: pa.DataType) -> Any:
    return values.cast(target, safe=False)


@fault(
    "H4", "values.casts:_to_timestamp", CONFORM + "test_a_value_that_would_change_is_refused_by_row_and_value"
)
def nanoseconds_are_cut_off(_: Any, values: pa.Array, target: pa.DataType) -> Any:
    return values.cast(target, safe=False)


@fault(
    "H5",
    "delta.data.partitions:groups",
    "delta/test_datafiles.py::test_null_and_nan_partitions_keep_their_rows",
)
def rows_of_null_partitions_are_dropped(was: Any, *args: Any) -> Any:
    return [part for part in was(*args) if None not in part.values.values()]


@fault(
    "H6",
    "frames.columns:ObjectColumn.piece",
    SOURCE + "test_an_integer_column_with_gaps_keeps_all_digits_wherever_the_gap_is",
)
def integers_with_gaps_go_through_floats(was: Any, *args: Any) -> Any:
    return pc.cast(pc.cast(was(*args), pa.float64(), safe=False), pa.int64())


@fault(
    "H7",
    "delta.data.stats:FileStats._add",
    "delta/test_datafiles.py::test_nan_leaves_out_the_bounds_and_infinity_is_spelled_as_spark_does",
)
def bounds_are_made_of_all_but_nan(was: Any, self: Any, path: Any, leaf: pa.ChunkedArray) -> None:
    was(self, path, leaf.filter(pc.invert(pc.is_nan(leaf))))


@fault(
    "H8",
    "frames.conform:conform",
    "frames/test_prepare.py::test_empty_frames_are_fine_but_their_names_are_checked",
)
def a_frame_without_rows_is_not_looked_at(was: Any, piece: pa.Table, target: pa.Schema, **kwargs: Any) -> Any:
    return was(piece, target, **kwargs) if piece.num_rows else target.empty_table()


@fault(
    "H9",
    "delta.write.transaction:Transaction.check_conflict",
    "delta/test_overwrite.py::test_a_change_of_schema_or_of_clustering_meanwhile_is_a_conflict",
)
def a_change_of_the_schema_is_no_conflict(*_: Any) -> None:
    return


@fault(
    "H10",
    "iceberg.data.datafiles:encode",
    "iceberg/test_datafiles.py::test_rows_that_go_missing_on_the_way_are_noticed",
)
def rows_go_missing(was: Any, *args: Any, **kwargs: Any) -> Any:
    with suppress(InternalError):
        yield from was(*args, **kwargs)


@fault(
    "H1",
    "delta.data.variants:with_variants",
    "delta/test_variants.py::test_every_verb_carries_variants_as_they_are",
)
def rows_that_are_written_again_lose_their_variants(_: Any, state: Any) -> Any:
    return state


@fault(
    "H1",
    "changes.lookup.candidate_rows:taken_along",
    "delta/test_variants.py::test_every_verb_carries_variants_as_they_are",
)
def a_row_that_changes_loses_its_variant(was: Any, come: Any, gone: Any, keys: Any) -> Any:
    return was(come, None if gone is None else gone.slice(0, 0), keys)


@fault(
    "H1",
    "delta.data.variants:check_whole",
    "delta/test_variants.py::test_shredded_variants_are_marked_as_gone_and_not_written_again",
)
def a_shredded_variant_is_taken_for_a_whole_one(*_: Any) -> None:
    return


@fault(
    "H1",
    "delta.write.new_columns:left",
    "changes/test_schema_mode.py::test_one_commit_adds_the_column_and_applies_the_changes",
)
def rows_of_changes_lack_the_columns_that_they_bring(_: Any, common: Any) -> Any:
    return common["state"]


@fault(
    "H3",
    "changes.meaning.new_columns:brought",
    "changes/test_schema_mode.py::test_a_column_becomes_as_wide_as_the_changes_and_a_key_stays_as_it_is",
)
def a_key_gets_as_wide_as_that_of_the_changes(_: Any, found: Any, *__: Any) -> Any:
    return found


@fault(
    "H9",
    "delta.write.new_columns:asked",
    "changes/test_schema_mode.py::test_a_member_sees_the_columns_of_those_before_it",
)
def a_member_does_not_see_the_columns_of_those_before_it(was: Any, *args: Any) -> Any:
    return was(*args[:3])


@fault(
    "H3",
    "delta.write.new_columns:rules_of",
    "changes/test_schema_mode.py::test_a_column_by_which_a_rule_goes_gets_no_wider",
)
def a_column_of_a_rule_gets_wider(*_: Any) -> None:
    return


# --- I: change logs ----------------------------------------------------------------------------------
@fault(
    "I1",
    "changes.meaning.decide:_Decider._refused",
    DECIDE + "test_a_key_that_is_in_the_table_twice_is_named",
)
def a_key_may_come_twice(*_: Any) -> Any:
    return KeyError()


@fault(
    "I2",
    "changes.meaning.decide:decide",
    DECIDE + "test_the_last_change_by_sequence_wins_in_whatever_order_batches_come",
)
def the_sequence_of_a_row_does_not_count(was: Any, batch: Any, known: Any) -> Any:
    rows = known.rows
    for name in batch.sequence_by:
        column = pa.nulls(rows.num_rows, rows.schema.field(name).type)
        rows = rows.set_column(rows.schema.get_field_index(name), name, column)
    return was(batch, replace(known, rows=rows))


@fault("I3", "changes.meaning.decide:decide", DECIDE + "test_a_late_change_does_not_revive_a_deleted_row")
def a_deleted_key_is_forgotten(was: Any, batch: Any, known: Any) -> Any:
    return was(batch, replace(known, tombstones=known.tombstones.slice(0, 0)))


@fault(
    "I4",
    "changes.meaning.decide:decide",
    DECIDE + "test_within_a_batch_the_place_decides_between_a_delete_and_an_insert",
)
def the_first_change_of_a_batch_wins(was: Any, batch: Any, known: Any) -> Any:
    turned = np.arange(batch.table.num_rows)[::-1]
    return was(replace(batch, table=batch.table.take(pa.array(turned)), ops=batch.ops[turned]), known)


@fault(
    "I5",
    "cdc.envelopes.debezium.events:Debezium._checked",
    "cdc/test_debezium.py::test_the_two_events_of_a_changed_key_name_each_other",
)
def the_old_row_of_a_changed_key_stays(was: Any, *args: Any) -> Any:
    return [replace(change, moved=None) for change in was(*args)]


@fault(
    "I6",
    "cdc.envelopes.tombstones:unmet",
    "cdc/test_compacted.py::test_its_table_is_told_by_the_topic_or_by_its_key",
)
def a_tombstone_without_its_delete_is_passed_over(*_: Any) -> Any:
    return iter(())


@fault(
    "I7",
    "delta.write.apply:ApplyTransaction.check_conflict",
    TABLES + "test_two_writers_never_insert_one_new_key_twice",
)
def changes_keep_their_first_plan(*_: Any) -> None:
    return


@fault(
    "I7",
    "changes.tasks.rebase:Rebase._differences",
    TABLES + "test_two_writers_never_insert_one_new_key_twice",
)
def files_that_came_are_not_compared(was: Any, *args: Any) -> Any:
    return was(*args)[0], []


@fault(
    "I7",
    "changes.tasks.apply_job:_KnownFile.now",
    REBASED + "by_tasks_what_others_leave_alone_is_neither_decided_nor_written_again",
)
def rows_keep_their_places_where_others_marked_rows_before_them(_: Any, __: Any, places: Any) -> Any:
    return places


@fault(
    "I7",
    "changes.tasks.apply_job:_DecidedJob.finds",
    REBASED + "by_tasks_what_others_leave_alone_is_neither_decided_nor_written_again",
)
def tasks_keep_what_they_decided_about_rows_that_others_took(*_: Any) -> bool:
    return True


@fault(
    "I7",
    "delta.data.vector_files:Vectors.taking",
    RIVALS + "test_writers_of_disjoint_keys_merge_their_marks_and_read_the_file_once",
)
def a_union_of_vectors_lacks_the_rivals(_: Any, self: Any, add: Any, numbers: Any) -> Any:
    return bitmap(numbers)


@fault("I7", "delta.data.vector_files:Vectors.taking", model("unions-objects", 0), "revived:")
def a_vector_is_a_union_without_the_base(was: Any, self: Any, add: Any, numbers: Any) -> Any:
    return was(self, {name: value for name, value in add.items() if name != "deletionVector"}, numbers)


@fault("I7", "delta.data.vector_files:Vectors.widened", model("unions-locks", 0), "revived:")
def places_among_live_rows_are_taken_for_places_in_the_file(_: Any, self: Any, add: Any, places: Any) -> Any:
    return (self.of(add) or bitmap()) | bitmap(places)


@fault(
    "I7",
    "delta.data.vector_files:Vectors.stays",
    RIVALS + "test_a_file_whose_rows_came_back_is_looked_at_again",
)
def rows_under_a_vector_that_is_gone_are_not_looked_for(was: Any, self: Any, before: Any, after: Any) -> Any:
    left = was(self, before, after)
    rows = int(json.loads(after["stats"])["numRecords"])
    return self._live(before, rows)[self._live(before, rows)] if left is None else left


@fault(
    "I7",
    "changes.lookup.candidate_rows:GoneRows.places",
    TABLES + "test_rows_go_by_their_places_in_the_file_that_has_them",
)
def rows_go_by_the_places_of_another_file(was: Any, self: Any, file: Any) -> Any:
    """Of the last file that loses as many: no sum tells the two apart."""
    own = was(self, file)
    return [one for one in self.goes.values() if len(one) == len(own)][-1] if file in self.goes else own


@fault(
    "I7",
    "changes.lookup.candidate_rows:BatchKeys.unseen",
    RIVALS + "test_a_file_that_a_rival_rewrote_is_looked_at_anew",
)
def a_file_that_a_rival_rewrote_has_no_row_of_ours(
    was: Any, self: Any, files: Any, *, carries: bool
) -> list[str]:
    known = bool(self.found)
    new: list[str] = was(self, files, carries=carries)
    if not known:
        return new
    nothing = np.zeros(0, np.int64)
    for name in new:
        self.found[name] = self._hits(self._nothing, nothing, 0)
    return []


@fault(
    "I7",
    "changes.lookup.candidate_rows:BatchKeys.gather",
    RIVALS + "test_rows_that_databricks_compacted_are_found_by_its_tags_where_they_tell_of_all_rows",
)
def rows_that_a_compaction_moved_keep_their_places(was: Any, self: Any, after: str, parts: Any) -> None:
    was(self, after, [(name, 0, rows) for name, _, rows in parts])


@fault(
    "I7",
    "delta.data.spans:_spans",
    "delta/test_pruning.py::test_files_that_cannot_match_are_not_read",
)
def a_file_with_bounds_has_no_null(was: Any, *args: Any) -> Any:
    return {
        name: Span(one.low, one.high, is_empty=one.is_empty, has_nulls=False)
        for name, one in was(*args).items()
    }


@fault(
    "I7",
    "iceberg.write.memory_file:MemoryFile.recall",
    TABLES + "test_a_rivals_deletion_is_known_to_a_late_insert_that_was_planned_before",
)
def what_a_table_remembers_is_read_once(was: Any, self: Any, *args: Any) -> Any:
    if self._known is not None:
        yield from ()
        return self._known[1]
    return (yield from was(self, *args))


@fault(
    "I7",
    "delta.write.matching_files:MatchingFiles._rewrite",
    BESIDE + "test_a_plan_that_failed_at_its_upload_says_nothing_of_the_next",
)
def a_verdict_is_kept_before_its_vector_is_stored(was: Any, self: Any, add: Any, *args: Any) -> Any:
    self.made[file_key(add)] = found = yield from was(self, add, *args)
    return found


@fault(
    "I7",
    "iceberg.write.matching_files:MatchingFiles._marked",
    BESIDE + "test_a_plan_that_failed_at_its_upload_says_nothing_of_the_next",
)
def a_verdict_is_kept_before_its_delete_file_is_stored(
    was: Any, self: Any, head: Any, task: Any, *args: Any
) -> Any:
    loss, named = was(self, head, task, *args)
    self._losses[mark_of(task)] = loss
    return loss, named


@fault(
    "I3",
    "changes.tasks.rebase:Rebase._remembered_otherwise",
    TABLES + "test_a_rivals_deletion_is_known_to_a_late_insert_that_was_planned_before",
)
def tombstones_that_came_are_not_compared(*_: Any) -> Any:
    return []


@fault("I8", "changes.meaning.decide:decide", DECIDE + "test_deletes_are_guarded_as_updates_are")
def an_older_delete_takes_a_newer_row(was: Any, batch: Any, known: Any) -> Any:
    decision = was(batch, known)
    takes = (batch.ops == ChangeOp.DELETE).all()
    return replace(decision, dropped=np.arange(known.rows.num_rows)) if takes else decision


@fault(
    "I9",
    "medallion.files.rows:_sequence",
    "medallion/test_jobs.py::test_a_full_load_never_beats_a_change_or_a_deletion",
)
def a_full_load_beats_changes(was: Any, *args: Any) -> Any:
    return pc.abs(was(*args))


@fault(
    "I10",
    "medallion.files.file_versions:tag_of",
    "medallion/test_restarts.py::test_the_third_load_wins_with_the_content_of_the_first",
)
def a_content_that_came_back_is_known(_: Any, __: Any, content: str, known: Any, *___: Any) -> Any:
    return last_of(content, known) or content


@fault(
    "I11",
    "changes.meaning.decide:_Decider._equal",
    DECIDE + "test_equal_rows_of_one_sequence_are_duplicates_and_unequal_ones_are_refused_with_the_key",
)
def unequal_changes_of_one_sequence_are_equal(_: Any, __: Any, left: Any, ___: Any) -> Any:
    return np.ones(len(left), np.bool_)


@fault(
    "I12",
    "cdc.connect.placeholder:Placeholder.stands_in",
    "cdc/test_debezium.py::test_what_the_source_left_out_is_told_from_null_by_kind",
)
def a_value_that_was_left_out_is_a_value(*_: Any) -> bool:
    return False


@fault(
    "I13",
    "delta.write.restored_positions:check_in_effect",
    "delta/test_restores.py::test_no_batch_follows_a_position_whose_rows_were_restored_away",
)
def a_restore_behind_a_position_is_not_looked_for(*_: Any) -> Any:
    return no_steps()
