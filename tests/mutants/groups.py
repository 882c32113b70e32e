"""The protections of commits of many writes: each mutant takes one away, and its killer must notice."""

from __future__ import annotations

from tests.mutants.killers import Mutant, model, pytest

OWN = pytest("test_append_many.py")
"""A mutant says which of these must fail."""
LATE = pytest("test_intents_with_uploads.py")
LEDGER, GROUPS = "stores/ledger.py", "stores/groups.py"
TOLD = "            if len(own) > 1 and self._told.setdefault(name, own) == own:\n"
TRANSACTION, MANY = "delta/write/transaction.py", "delta/write/group_commit.py"
LEFT_OUT = "test_members_that_were_committed_before_are_left_out"
MEANWHILE = "test_a_member_that_another_writer_commits_meanwhile_is_left_out"

GROUP_MUTANTS = (
    Mutant(
        "G1",
        "a member in the list of a commit",
        "delta/write/members.py",
        (
            (
                "    entries = [write.whole_entry() for write in writes]\n",
                "    entries = [write.whole_entry() for write in writes[:-1] or writes]\n",
            ),
        ),
        OWN,
        LEFT_OUT,
    ),
    Mutant(
        "G1-iceberg",
        "a member in the list of a snapshot",
        "iceberg/write/members.py",
        (
            (
                "MEMBER_KEYS: members.packed(write.key for write in writes)}",
                "MEMBER_KEYS: members.packed(write.key for write in writes[1:])}",
            ),
        ),
        OWN,
        MEANWHILE,
    ),
    Mutant(
        "G2",
        "the search for members in a commit that came first",
        TRANSACTION,
        (("            if write.key in found:\n", "            if False:\n"),),
        OWN,
        MEANWHILE,
    ),
    Mutant(
        "G2-again",
        "the stop before a version where members were met",
        TRANSACTION,
        (("        if self.met:  # also", "        if False:  # also"),),
        OWN,
        MEANWHILE,
    ),
    Mutant(
        "G2-early",
        "the same stop where the commit file was asked for before",
        TRANSACTION,
        (
            (
                "        if self.met:  # also",
                "        if self.met and (version, self.commit_id) not in self._bodies:  # also",
            ),
        ),
        pytest("delta/test_group_body.py"),
        "test_a_body_that_was_asked_for_before_a_member_was_met_is_not_given_again",
    ),
    Mutant(
        "G2-ahead",
        "a commit file that is made after the commits before it were read",
        "",
        (
            (
                "        state.ticket = yield from ticket_queue.wait_turn(state.limits)\n",
                (
                    "        state.candidate.body(state.seen + 2)\n"
                    "        state.ticket = yield from ticket_queue.wait_turn(state.limits)\n"
                ),
            ),
            (
                "        if self.met:  # also",
                "        if self.met and (version, self.commit_id) not in self._bodies:  # also",
            ),
        ),
        model("group-lease", 0),
        "doubled",
    ),
    Mutant(
        "G2-iceberg",
        "the search for members in a snapshot that came first",
        "iceberg/write/append.py",
        (("        if self.met:\n", "        if False:\n"),),
        OWN,
        MEANWHILE,
    ),
    Mutant(
        "G3",
        "the answer in place of a member at fault",
        "table/writer.py",
        (
            (
                (
                    "        except (InvalidInputError, WouldAlterError, ReplayMismatchError) as error:\n"
                    "            member.fail(error)\n"
                ),
                (
                    "        except (InvalidInputError, WouldAlterError, ReplayMismatchError) as error:\n"
                    "            raise error from None\n"
                ),
            ),
        ),
        OWN,
        "test_each_member_has_its_answer_in_the_order_of_the_call",
    ),
    Mutant(
        "G4",
        "the receipt of the member itself",
        "table/writer.py",
        (
            (
                "member.answer = known.receipt(self.uri, member.write,",
                "member.answer = known.receipt(self.uri, members[0].write,",
            ),
        ),
        OWN,
        "test_each_member_has_its_answer_in_the_order_of_the_call",
    ),
    Mutant(
        "G5",
        "the name of a member that is left in an error of all",
        "table/operation.py",
        (("        return self.plan.write.each[0]\n", "        return self.plan.write\n"),),
        OWN,
        "test_what_concerns_all_names_a_member_that_decides_it",
    ),
    Mutant(
        "G6",
        "the look for commits of earlier calls",
        MANY,
        (("        elif not ours:\n", "        elif False:\n"),),
        model("group-objects", 1),
        "doubled:",
    ),
    Mutant(
        "G6-seen",
        "the earliest of the members' bases",
        MANY,
        (
            (
                "        candidate, min(earliest, state.seen), arbiter=state.arbiter, limits=limits\n",
                "        candidate, state.seen, arbiter=state.arbiter, limits=limits\n",
            ),
        ),
        model("group-objects", 1),
        "doubled:",
    ),
    Mutant(
        "G7",
        "that a key counts once in a call",
        "table/group.py",
        (("            if earlier is not member:\n", "            if False:\n"),),
        OWN,
        "test_a_key_that_comes_twice_counts_once",
    ),
    Mutant(
        "G8",
        "the comparison of the rows behind a long list",
        "delta/write/recalled.py",
        (
            (
                (
                    '    keys.must_match(write.key, str(entry["fingerprint"]), write.fingerprint, at.version)\n'
                    "    return entry\n"
                ),
                "    return entry\n",
            ),
        ),
        OWN,
        "test_rows_behind_a_long_list_are_compared",
    ),
    Mutant(
        "G9",
        "the look at the types of parts before their values",
        "frames/prepare.py",
        (
            (
                "    draft.piece(0, 0)\n    prints = PartsFingerprinter(",
                "    prints = PartsFingerprinter(",
            ),
        ),
        pytest("frames/test_alike.py"),
        "test_a_column_of_another_type_is_taken_where_it_holds_only_null_and_refused_where_it_holds_nothing",
    ),
    Mutant(
        "G9-merge",
        "the end of a pass before a frame that brings a column",
        "frames/bulk_check.py",
        (("        if merge and (part is None or not part.names <= names):\n", "        if False:\n"),),
        pytest("frames/test_alike.py"),
        "test_answers_end_before_a_frame_that_brings_a_column",
    ),
    Mutant(
        "G10",
        "that the result of a group counts before another attempt's doubt",
        LEDGER,
        (
            (
                "            if not isinstance(told, Missing):\n                return told\n",
                (
                    '            if not isinstance(told, Missing) and isinstance(self._read(key, "doubt"), Missing):\n'
                    "                return told\n"
                ),
            ),
        ),
        pytest("stores/test_ledger_groups.py"),
        "test_a_result_counts_before_the_doubt_of_another_attempt",
    ),
    Mutant(
        "G10-late",
        "that the result of a group is put again as it was",
        GROUPS,
        (
            ("        return self._bodies.setdefault(group, fresh)\n", "        return fresh\n"),
            (TOLD, "            if len(own) > 1:\n"),
        ),
        pytest("stores/test_ledger_groups.py"),
        "test_a_result_whose_answer_was_lost_is_put_again_as_it_was",
    ),
    Mutant(
        "G10-own",
        "that only intents of the call itself lead to its result",
        GROUPS,
        (("{key for key, answer in answers.items() if isinstance(answer, Ok)}", "set(answers)"),),
        pytest("stores/test_ledger_groups.py"),
        "test_a_key_whose_intent_is_of_another_call_is_told_by_itself",
    ),
    Mutant(
        "G10-dynamodb",
        "the group's name while a key is in doubt, in DynamoDB",
        "stores/dynamodb_ledger.py",
        (
            (
                "        if record.version is not None:\n            return self._put(",
                "        if True:\n            return self._put(",
            ),
        ),
        pytest("stores/test_dynamodb_groups.py"),
        "test_a_result_counts_before_a_doubt_of_another_attempt",
    ),
    Mutant(
        "G10-kept",
        "the longer life of a result in DynamoDB",
        "stores/dynamodb_ledger.py",
        (("str(expire_time_s + KEPT_LONGER_S)", "str(expire_time_s)"),),
        pytest("stores/test_dynamodb_groups.py"),
        "test_a_result_outlives_the_intents_that_lead_to_it",
    ),
    Mutant(
        "G11",
        "the wait for the ledger before the commit of keys that go out with the upload",
        "protocol/delta/commit.py",
        (("side_by_side(recheck, opening) if opening is not None else recheck", "recheck"),),
        model("retry-objects", 1),
        "doubled",
    ),
    Mutant(
        "G11-known",
        "the stop where a key that went out with the upload is known",
        "protocol/keys.py",
        (("    if not all(ours for _, ours in answers):\n", "    if False:\n"),),
        model("retry-objects", 1),
        "doubled",
    ),
    Mutant(
        "G11-files",
        "the files of a group that goes on with them",
        MANY,
        (("            if not candidate.files:\n", "            if True:\n"),),
        LATE,
        "test_files_of_members_that_follow_a_dead_group_stay",
    ),
    Mutant(
        "G11-left",
        "the end of files that a repeat has uploaded",
        "delta/write/write.py",
        (("        yield from discard(files)\n", "        pass\n"),),
        LATE,
        "test_a_repeat_leaves_no_file",
    ),
    Mutant(
        "G11-positions",
        "that a repeat is known before the positions that it moved are looked at",
        TRANSACTION,
        (("        return self.few_rows and not self.positions\n", "        return self.few_rows\n"),),
        LATE,
        "test_a_repeat_of_moved_positions_is_a_repeat",
    ),
)
