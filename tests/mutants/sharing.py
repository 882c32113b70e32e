"""The protections of commits that several processes share: each mutant takes one away, and its killer must notice."""

from __future__ import annotations

from tests.mutants.killers import Mutant, alone, model, pytest

OWN, FITTING = pytest("test_shared_commits.py"), pytest("delta/test_waiting.py")
ICEBERG = alone("iceberg/test_shared_commits.py")
CHANGES, CHANGING = pytest("test_shared_changes.py"), "delta/write/waiting_changes.py"
"""A mutant says which of these must fail."""
SHARING, WAITING = "protocol/sharing.py", "delta/write/waiting.py"
QUEUE, MEMBERS = "protocol/member_queue.py", "protocol/members.py"
WITHDRAWAL = "delta/write/withdrawal.py"

SHARING_MUTANTS = (
    Mutant(
        "M20",
        "the search for a member's key in the commits since its base",
        WAITING,
        (("    if any(keys is not None and key in keys for keys in between):\n", "    if False:\n"),),
        OWN,
        "test_a_member_that_stays_in_the_queue_is_never_carried_again",
    ),
    Mutant(
        "M20-unread",
        "the reading of commits that a leader has not examined",
        SHARING,
        (("    if not unknown:\n", "    if True:\n"),),
        model("share-objects", 1),
        "doubled",
    ),
    Mutant(
        "share-changed",
        "the refusal of members from before a change of the table",
        WAITING,
        (("    if commit.metadata is not None or commit.protocol is not None:\n", "    if False:\n"),),
        FITTING,
        "test_none_from_before_a_change_of_the_table_is_carried",
    ),
    Mutant(
        "share-table",
        "the comparison of the table that a member was made for",
        QUEUE,
        (
            (
                "    return member if made_for == (table_id, offer.base, table) else None\n",
                "    return member\n",
            ),
        ),
        FITTING,
        "test_members_of_another_table_or_another_schema_are_refused",
    ),
    Mutant(
        "share-rows",
        "the comparison of a member's files with its rows",
        WAITING,
        (
            (
                "    if None in counted or sum(rows or 0 for rows in counted) != write.rows or len(counted) != write.files:\n",
                "    if False:\n",
            ),
        ),
        FITTING,
        "test_a_member_whose_files_are_not_its_rows_is_refused",
    ),
    Mutant(
        "share-form",
        "that a member of a later release is left to others",
        QUEUE,
        (('        return bool(json.loads(body)["form"] == form)\n', "        return True\n"),),
        FITTING,
        "test_what_a_later_release_wrote_is_left_to_others",
    ),
    Mutant(
        "share-twice",
        "that a key comes once in a commit",
        MEMBERS,
        (("        if one.write.key in names or app in apps:\n", "        if app in apps:\n"),),
        FITTING,
        "test_one_key_is_carried_once",
    ),
    Mutant(
        "share-order",
        "that a commit carries one batch of an app",
        MEMBERS,
        (("        if one.write.key in names or app in apps:\n", "        if one.write.key in names:\n"),),
        FITTING,
        "test_batches_of_an_app_come_one_a_commit_and_in_their_order",
    ),
    Mutant(
        "share-answer",
        "that a commit is ours only if it carries what this call offered",
        "delta/write/write.py",
        (
            (
                '    if candidate.write.offer and entry.get("offer") == candidate.write.offer:\n',
                "    if candidate.write.offer:\n",
            ),
        ),
        OWN,
        "test_a_key_that_waits_twice_is_committed_once",
    ),
    Mutant(
        "share-through",
        "the last version in which a member may be committed",
        SHARING,
        (
            (" and state.seen < one.through and one.kind == kind]\n", " and one.kind == kind]\n"),
            ("one.base <= state.seen < one.through\n", "one.base <= state.seen\n"),
        ),
        OWN,
        "test_a_member_waits_for_few_versions_only",
    ),
    Mutant(
        "share-doubt",
        "the doubt in which a write ends that others may still commit",
        SHARING,
        (
            (
                "    if share is None or seen >= share.through or isinstance(",
                "    if True or isinstance(",
            ),
        ),
        model("share-objects", 1),
        "zombie",
    ),
    Mutant(
        "share-late",
        "the end of a wait when the time is used up",
        SHARING,
        (
            (
                "        if now_s - state.started_s > state.limits.timeout_s or now_s > state.limits.until_s:\n",
                "        if False:\n",
            ),
        ),
        OWN,
        "test_who_gives_up_ends_in_doubt_for_a_leader_may_have_read_its_member",
    ),
    Mutant(
        "share-unproved",
        "that a version which was read without a proof of the log proves nothing itself",
        "protocol/delta/log_try.py",
        (("self.seen, self.beyond = version", "self.seen, self.anchor = version"),),
        OWN,
        "test_a_table_that_another_replaces_while_a_write_waits_is_not_written",
    ),
    Mutant(
        "share-overdue",
        "that no member is put once the time is used up",
        SHARING,
        (("    if (yield from overdue(state.limits, state.started_s)):\n", "    if False:\n"),),
        OWN,
        "test_no_member_is_put_when_the_time_is_used_up",
    ),
    Mutant(
        "share-denied",
        "that a process asks no more where the queue may not be used",
        "table/shared_queue.py",
        (("        if not wanted or usable is False:\n", "        if not wanted:\n"),),
        OWN,
        "test_where_the_queue_may_not_be_used_writes_go_alone",
    ),
    Mutant(
        "share-listens",
        "the look of a quick writer at those who wait",
        "table/shared_queue.py",
        (("queue_known=usable is not None, listens=listens)", "queue_known=usable is not None)"),),
        pytest("integration/test_shared_commits.py"),
        "test_a_quick_writer_notices_those_who_wait",
    ),
    Mutant(
        "share-asked",
        "the question whether members can be taken out, before the first one is put",
        SHARING,
        (("    if share.denied or share.asked or share.terms.queue_known:\n", "    if True:\n"),),
        OWN,
        "test_where_the_queue_may_not_be_used_writes_go_alone",
    ),
    Mutant(
        "share-leave",
        "that a doubt stands in the ledger before its member leaves the queue",
        "protocol/delta/commit.py",
        (
            (
                (
                    "        if version is None or doubting is None or (yield from doubting(version)):\n"
                    "            yield from sharing.leave(state.share)\n"
                ),
                (
                    "        yield from sharing.leave(state.share)\n"
                    "        if version is not None and doubting is not None:\n"
                    "            yield from doubting(version)\n"
                ),
            ),
        ),
        model("share-resolve", 1),
        "misled",
    ),
    Mutant(
        "share-asked-late",
        "that resolve looks at the queue before it reads the log",
        "delta/write/resolve.py",
        (
            ("    through = yield from _waits_through(key, limits)\n", ""),
            (
                "    head, found, whole = yield from _scan(key, base, limits)\n",
                (
                    "    head, found, whole = yield from _scan(key, base, limits)\n"
                    "    through = yield from _waits_through(key, limits)\n"
                ),
            ),
        ),
        model("share-resolve", 1),
        "misled",
    ),
    Mutant(
        "share-unrecorded",
        "that a doubt says whether it was recorded",
        "protocol/keys.py",
        (
            (
                "        return False\n    return isinstance(answer, Ok)\n",
                "        return True\n    return True\n",
            ),
        ),
        OWN,
        "test_who_gives_up_leaves_the_queue_after_its_doubt_is_recorded",
    ),
    Mutant(
        "share-changes-key",
        "the search for a member in the commits since its base",
        WAITING,
        (("            or is_there(one.write, between, txns)\n", ""),),
        CHANGES,
        "test_a_member_that_stays_in_the_queue_is_never_applied_again",
    ),
    Mutant(
        "share-changes-withdrawn",
        "that changes which were taken back are carried by no one, late as its leader may be",
        WAITING,
        (
            (
                "            or is_withdrawn(one.write.key, [known.get(at) or {} for at in since])\n",
                "",
            ),
        ),
        model("share-withdrawn", 0),
        "zombie",
    ),
    Mutant(
        "share-changes-unwithdrawn",
        "the version that takes refused changes back",
        WITHDRAWAL,
        (
            (
                "    try:\n        done, at =",
                "    raise cause\n    try:\n        done, at =",
            ),
        ),
        model("share-withdrawn", 0),
        "zombie",
    ),
    Mutant(
        "share-changes-withdrawn-first",
        "that a refusal waits for the version that takes the changes back",
        WITHDRAWAL,
        (("        raise error from cause\n", "        raise cause from None\n"),),
        model("share-withdrawn", 1),
        "zombie",
    ),
    Mutant(
        "share-changes-withdrawn-error",
        "that a library's exception ends no doubt",
        WITHDRAWAL,
        (("    except Exception:  # of a library too\n", "    except CommitUnknownError:\n"),),
        CHANGES,
        "test_a_refusal_that_no_version_takes_back_is_in_doubt",
    ),
    Mutant(
        "share-changes-shown",
        "that who takes over from a leader of changes shows it",
        SHARING,
        (("                if share.waits_for_changes:  #", "                if False:  #"),),
        CHANGES,
        "test_changes_of_a_dead_writer_are_applied_once",
    ),
    Mutant(
        "share-changes-withdrawn-blind",
        "that the version which takes changes back looks for their key in all before it",
        WITHDRAWAL,
        (
            (
                "    if done is not None:\n        return done\n",
                "",
            ),
        ),
        model("share-withdrawn", 0),
        "zombie",
    ),
    Mutant(
        "share-changes-withdrawn-acked",
        "that a version which takes changes back is no answer to them",
        WITHDRAWAL,
        (
            (
                "    raise cause\n\n\n",
                "    return DeltaDone(at, False, named.rows, 0, 1, None, changes=named.changes, members=1)\n\n\n",
            ),
        ),
        model("share-refused", 0),
        "lost",
    ),
    Mutant(
        "share-changes-listed",
        "that a commit lists no member that its plan had left out",
        "delta/write/apply_shared.py",
        (
            (
                "    plan.join([one for one in plan.joined if one.write.key not in keys])\n",
                "",
            ),
        ),
        model("share-refused", 0),
        "revived",
    ),
    Mutant(
        "share-changes-read",
        "that the changes of a member are those of its fingerprint",
        CHANGING,
        (("    if str(changes.fingerprint) != write.fingerprint or", "    if"),),
        CHANGES,
        "test_changes_that_are_not_what_their_member_says_are_not_applied",
    ),
    Mutant(
        "share-changes-counts",
        "that each member is answered what became of its own changes",
        "delta/write/apply_shared.py",
        (
            (
                "        counts = self.decided.counts[one.key].to_dict()\n",
                "        counts = self.decided.counts[self.write.key].to_dict()\n",
            ),
        ),
        CHANGES,
        "test_who_waits_is_committed_with_another_writers_changes",
    ),
    Mutant(
        "share-changes-fault",
        "that a member at fault is left out of the plan",
        "delta/write/apply_shared.py",
        (("            faults, self.met = set(self.met), {}\n", "            faults = set(self.met)\n"),),
        CHANGES,
        "test_a_member_that_is_refused_fails_alone_and_for_good",
    ),
    Mutant(
        "share-changes-left-out",
        "that who was left out counts as none that the commit carries",
        "protocol/delta/commit.py",
        (("            state.share.leave_out()\n", "            pass\n"),),
        model("share-refused", 0),
        "alarm",
    ),
    Mutant(
        "share-changes-late",
        "that a plan is made once it is known who is in the commit",
        "protocol/delta/commit.py",
        (
            (
                "        yield from sharing.gather(state)\n        yield from state.candidate.renew()\n",
                "        yield from state.candidate.renew()\n        yield from sharing.gather(state)\n",
            ),
        ),
        model("share-changes", 0),
        "revived",
    ),
    Mutant(
        "share-changes-doubt",
        "the way from the doubt of refused changes to their refusal",
        WITHDRAWAL,
        (("    if not isinstance(cause, REFUSALS) or", "    if True or"),),
        CHANGES,
        "test_a_leader_that_is_refused_fails_alone",
    ),
    Mutant(
        "share-iceberg-key",
        "the search for a member's key in the metadata of an Iceberg table",
        "iceberg/write/waiting.py",
        (("one is not None and one.write.key not in met]", "one is not None]"),),
        ICEBERG,
        "test_a_member_that_stays_in_the_queue_is_never_carried_again",
    ),
    Mutant(
        "share-iceberg-expired",
        "that each sequence number since a member's base is shown by the metadata",
        "iceberg/write/waiting.py",
        (("dict.fromkeys(self.head.sequences.values())", "dict.fromkeys(range(100))"),),
        ICEBERG,
        "test_no_member_is_carried_past_snapshots_that_were_expired",
    ),
    Mutant(
        "share-iceberg-doubt",
        "the sequence number that a ledger record in doubt tells",
        "iceberg/write/doubts.py",
        (("return -1 if found is None else found", "return -1"),),
        ICEBERG,
        "test_who_gives_up_on_an_idle_table_is_decided_by_the_same_call",
    ),
    Mutant(
        "share-iceberg-barred",
        "the doubt of a writer that meets a schema which may come back",
        "protocol/iceberg/commit.py",
        (("is_barred=barred)", "is_barred=True)"),),
        ICEBERG,
        "test_who_meets_a_schema_that_may_come_back_is_in_doubt",
    ),
    Mutant(
        "share-iceberg-replanned",
        "that a doubt outlives the attempts that follow it",
        "table/writer.py",
        (("            if doubts:\n", "            if False:\n"),),
        ICEBERG,
        "test_a_doubt_outlives_the_attempts_that_follow",
    ),
    Mutant(
        "share-iceberg-torn",
        "that a member on the local disk is whole or absent",
        "iceberg/catalog/files.py",
        (('if f"/{FOLDER}" in path and', "if False and"),),
        ICEBERG,
        "test_a_member_on_the_local_disk_is_whole_or_absent",
    ),
)
