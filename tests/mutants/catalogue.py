"""The protections that must not be missing: each mutant takes one away, and its killer must notice.

Ids are those of docs/failure-modes.md; names are those of protections that have no number there.
"""

from __future__ import annotations

from tests.mutants.killers import HISTORIES, Mutant, model, pytest

OWN = pytest("mutants/test_protections.py")
"""The tests beside this module; a mutant says which of them must fail."""
CLAIM, PROTOCOL, FINGERPRINT = "protocol/delta/claim.py", "protocol", "frames/fingerprint.py"
KEYS_IN_COMMIT = '            ENGINE: {"commitId": self.commit_id, **self._listed[0]},\n'
DYNAMODB, S3, AWS = "stores/dynamodb.py", "stores/s3.py", "stores/aws.py"

MUTANTS = (
    Mutant(
        "M1",
        "the condition of the DynamoDB put",
        DYNAMODB,
        (
            (
                'TableName=self.table_name, Item=item, ConditionExpression="attribute_not_exists(fileName)"\n',
                "TableName=self.table_name, Item=item\n",
            ),
        ),
        OWN,
        "test_a_second_claim_of_a_version_is_refused",
    ),
    Mutant(
        "M2-repair",
        "the condition of the repairer's copy",
        CLAIM,
        (
            (
                'put = PutIfAbsent(LOG + entry.file_name, body, name="repair.put_commit")',
                'put = Put(LOG + entry.file_name, body, name="repair.put_commit")',
            ),
        ),
        model("put", 1),
        "replaced:",
    ),
    Mutant(
        "M2-store",
        "the If-None-Match header",
        S3,
        (('{"IfNoneMatch": "*"}', "{}"),),
        OWN,
        "test_a_second_create_of_a_commit_file_is_refused",
    ),
    Mutant(
        "M2-memory",
        "the condition of creates in memory",
        "stores/memory.py",
        (
            (
                "            if path in self.blobs:\n                return Exists()\n            self.blobs[path] = body\n",
                "            self.blobs[path] = body\n",
            ),
        ),
        HISTORIES,
        "is a second write under",
    ),
    Mutant(
        "M3",
        "the reading back before the ack",
        PROTOCOL,
        (
            (
                "            yield from _verify(state, version, body, entry)\n",
                "            yield from _acknowledge(state, entry)\n",
            ),
        ),
        OWN,
        "test_a_commit_that_was_replaced_before_its_ack_is_not_acked",
    ),
    Mutant(
        "M4-claim",
        "the look at who holds the entry after a lost answer",
        CLAIM,
        (
            (
                "        if isinstance(outcome, Failed) and not in_doubt:\n",
                "        if isinstance(outcome, Failed | Unknown):\n",
            ),
        ),
        model("locks", 1),
        "zombie:",
    ),
    Mutant(
        "M4-commit",
        "the look at the commit file after a lost answer",
        PROTOCOL,
        (
            (
                "not in_doubt:\n            raise unanswered(put, outcome)\n        standing",
                "not in_doubt or isinstance(outcome, Unknown):\n            raise unanswered(put, outcome)\n        standing",
            ),
        ),
        model("objects", 1),
        "zombie:",
    ),
    Mutant(
        "M4-engine",
        "the error for an answer that stayed lost: Spark is told that the version is another's",
        "protocol/delta/place.py",
        (
            (
                "    except Exception:\n        yield from leave_queue(state)\n        raise\n",
                "    except Exception:\n        landed = False\n",
            ),
        ),
        model("engine", 1),
        "doubled",
    ),
    Mutant(
        "M5",
        "own-commit detection",
        PROTOCOL,
        (
            ("            if standing.value == body:\n", "            if False:\n"),
            ("        if found is not None:\n            return found\n", ""),
        ),
        model("objects", 1),
        "doubled:",
    ),
    Mutant(
        "M6-meaning",
        "409 as ask again",
        AWS,
        (
            (
                "    if code in _CONDITION or status == 412:",
                "    if code in _CONDITION or status in (409, 412):",
            ),
        ),
        OWN,
        "test_409_means_ask_again",
    ),
    Mutant(
        "M6-ask",
        "409 as ask again, in the protocol",
        "protocol/ask.py",
        (
            ("import Backoff, Busy, Effect, Failed,", "import Backoff, Busy, Effect, Exists, Failed,"),
            (
                "        if not isinstance(outcome, Busy | Unknown) or",
                (
                    "        if isinstance(outcome, Busy):\n            return Exists()\n"
                    "        if not isinstance(outcome, Busy | Unknown) or"
                ),
            ),
        ),
        model("locks", 2),
        "alarm:",
    ),
    Mutant(
        "M7",
        "the commit file before the ack",
        PROTOCOL,
        (
            (
                "    return (yield from _put_commit(state, version, body, entry))\n",
                "    yield from _acknowledge(state, entry)\n    return True\n",
            ),
        ),
        model("locks", 0),
        "lost:",
    ),
    Mutant(
        "M8",
        "the temp file after an error",
        PROTOCOL,
        (
            (
                '        standing = yield from ask(Get(path, name="commit.read_back"), state.limits)\n',
                (
                    "        if entry is not None and isinstance(outcome, Unknown):\n"
                    "            from safewrite.protocol.effects import Delete\n"
                    "            yield Delete(claims.LOG + entry.temp_path)\n"
                    '        standing = yield from ask(Get(path, name="commit.read_back"), state.limits)\n'
                ),
            ),
        ),
        model("locks", 1),
        "alarm:",
    ),
    Mutant(
        "M9",
        "the look at N.json when the temp file is missing",
        CLAIM,
        (("        yield from _must_exist(entry, limits)\n", "        pass\n"),),
        OWN,
        "test_an_entry_without_temp_file_and_commit_is_reported",
    ),
    Mutant(
        "M11",
        "the repair before N+1",
        PROTOCOL,
        (
            (
                "        listed = yield from _repair(state, newest, listed)\n",
                "        pass\n",
            ),
        ),
        model("locks", 1),
        "stuck:",
    ),
    Mutant(
        "M12",
        "the comparison of a repeat's rows with those that were committed",
        "protocol/keys.py",
        (("    if committed != offered:\n", "    if False:\n"),),
        HISTORIES,
        "acknowledged, and not",
    ),
    Mutant(
        "M13-history",
        "the key in the commit itself, in any history",
        "delta/write/transaction.py",
        ((KEYS_IN_COMMIT, '            ENGINE: {"commitId": self.commit_id, "writes": []},\n'),),
        HISTORIES,
        "AssertionError",
    ),
    Mutant(
        "M13-ledger",
        "the fingerprint of the rows that landed, in the ledger",
        "delta/write/write.py",
        (
            (
                "landed = replace(record, fingerprint=candidate.write.fingerprint)\n",
                "landed = record\n",
            ),
        ),
        pytest("stateful/test_found.py"),
        "test_rows_that_never_landed_are_not_taken_for_a_repeat",
    ),
    Mutant(
        "M13",
        "the key in the commit itself",
        "delta/write/transaction.py",
        ((KEYS_IN_COMMIT, '            ENGINE: {"commitId": self.commit_id, "writes": []},\n'),),
        OWN,
        "test_a_retry_finds_its_rows_although_the_ledger_never_heard_of_the_commit",
    ),
    Mutant(
        "M21",
        "rows of NULL partitions",
        "delta/data/partitions.py",
        (
            (
                "in rows_by_code(codes, [len(known) for known in spelled])\n    ]",
                (
                    "in rows_by_code(codes, [len(known) for known in spelled])\n"
                    "        if all(texts[i][codes[i][part[0]]] is not None for i in range(len(partition_by)))\n    ]"
                ),
            ),
        ),
        pytest("delta/test_datafiles.py::test_null_and_nan_partitions_keep_their_rows"),
        "test_null_and_nan_partitions_keep_their_rows",
    ),
    Mutant(
        "M22",
        "matching by name",
        "frames/conform.py",
        (("_single(piece.column(field.name))", "_single(piece.column(len(arrays)))"),),
        pytest("frames/test_conform.py::test_columns_go_by_name_and_not_by_position"),
        "test_columns_go_by_name_and_not_by_position",
    ),
    Mutant(
        "M23",
        "the check of casts",
        "values/casts.py",
        (("return pc.cast(values, target, safe=True)", "return pc.cast(values, target, safe=False)"),),
        pytest("frames/test_conform.py::test_a_value_that_would_change_is_refused_by_row_and_value"),
        "DID NOT RAISE",
    ),
    Mutant(
        "M23-decimals",
        "the look at decimals that overflow",
        "values/decimals.py",
        (("    if found.precision - found.scale + kind.scale <= DECIMAL_DIGITS_MAX:\n", "    if True:\n"),),
        pytest("values/test_decimals.py::test_a_decimal_of_another_scale_is_equal_or_refused"),
        "test_a_decimal_of_another_scale_is_equal_or_refused",
    ),
    Mutant(
        "M23-fraction",
        "the check for fractions",
        "values/casts.py",
        (("    if (whole != numbers).any():\n", "    if False:\n"),),
        pytest("frames/test_conform.py::test_a_value_that_would_change_is_refused_by_row_and_value"),
        "DID NOT RAISE",
    ),
    Mutant(
        "M24",
        "the check that no nanoseconds are cut off",
        "values/casts.py",
        (
            (
                ")\n    return in_calendar(_cast(values, target))",
                ")\n    return in_calendar(pc.cast(values, target, safe=False))",
            ),
        ),
        pytest("frames/test_conform.py::test_a_value_that_would_change_is_refused_by_row_and_value"),
        "DID NOT RAISE",
    ),
    Mutant(
        "M27",
        "the look at the data files before the commit",
        PROTOCOL,
        (("        recheck = state.candidate.recheck()\n", "        recheck: Steps = (_ for _ in ())\n"),),
        OWN,
        "test_a_data_file_that_was_removed_before_the_commit_is_noticed",
    ),
    Mutant(
        "M27-proof",
        "the MD5 that an upload is proved by",
        S3,
        (("Ok(None if etag is None else PROVED)", "Ok(PROVED)"),),
        OWN,
        "test_an_upload_proves_its_bytes_by_their_md5_only",
    ),
    Mutant(
        "M27-windows",
        "the look at files of windows before the last",
        "delta/write/staging.py",
        (("staging.check(before, limits), staging", "staging.check([], limits), staging"),),
        pytest("delta/test_staging.py::test_files_of_windows_before_the_last_are_read_back"),
        "AssertionError",
    ),
    Mutant(
        "M27-unproved",
        "the look at files whose uploads proved nothing",
        "delta/write/staging.py",
        (("    yield from staging.check(left, limits)\n", ""),),
        pytest("delta/test_staging.py::test_what_was_damaged_after_an_upload_that_proves_nothing_is_noticed"),
        "DID NOT RAISE",
    ),
    Mutant(
        "M28",
        "the error when all attempts are used up",
        PROTOCOL,
        (
            (
                "            raise ended from error\n        raise\n",
                "            raise ended from error\n        return Landed(state.seen, state.attempts, False, True)\n",
            ),
        ),
        OWN,
        "test_giving_up_is_an_error",
    ),
    Mutant(
        "M30-newest",
        "the consistent read of the newest entry",
        DYNAMODB,
        (
            (
                "                ConsistentRead=True,\n                KeyConditionExpression",
                "                ConsistentRead=False,\n                KeyConditionExpression",
            ),
        ),
        OWN,
        "test_the_newest_entry_is_never_a_stale_one",
    ),
    Mutant(
        "M30-entry",
        "the consistent read of one entry",
        DYNAMODB,
        (
            (
                "TableName=self.table_name, Key=self._key(file_name), ConsistentRead=True",
                "TableName=self.table_name, Key=self._key(file_name)",
            ),
        ),
        OWN,
        "test_who_holds_a_version_is_never_a_stale_answer",
    ),
    # --- drawn by outsiders, and once noticed by nothing ---
    Mutant(
        "app-id",
        "the look at the transactions of a winner's commit",
        "delta/write/transaction.py",
        (("        self._check_txn(self.write, version, commit)\n", ""),),
        OWN,
        "test_two_writers_of_one_app_id_are_told",
    ),
    Mutant(
        "time-zone",
        "that times with and without a zone have fingerprints of their own",
        FINGERPRINT,
        (('"T" if kind.tz else "t"', '"t"'),),
        pytest("frames/test_fingerprint.py"),
        "test_the_kind_of_a_value_takes_part",
    ),
    Mutant(
        "kind-of-fingerprint",
        "the comparison of the kinds of two fingerprints",
        FINGERPRINT,
        (
            ('    kind: str = "v1"\n', '    kind: str = field(default="v1", compare=False)\n'),
            (
                "from dataclasses import dataclass, replace\n",
                "from dataclasses import dataclass, field, replace\n",
            ),
        ),
        pytest("frames/test_fingerprint.py"),
        "test_fingerprints_of_two_kinds_are_never_equal",
    ),
    Mutant(
        "M12-volatile",
        "the names of the columns that a fingerprint leaves out",
        FINGERPRINT,
        (("        return rows.leaving_out(self._volatile)\n", "        return rows\n"),),
        pytest("test_volatile.py::test_null_where_the_first_write_left_a_column_out_is_no_repeat"),
        "test_null_where_the_first_write_left_a_column_out_is_no_repeat",
    ),
    Mutant(
        "volatile-hash",
        "that the fingerprint leaves out what is volatile",
        FINGERPRINT,
        (
            (
                " for i, name in enumerate(batch.schema.names) if name not in left_out]",
                " for i, name in enumerate(batch.schema.names)]",
            ),
        ),
        pytest("test_volatile.py::test_a_repeat_with_another_load_time_is_recognised"),
        "test_a_repeat_with_another_load_time_is_recognised",
    ),
    Mutant(
        "volatile-where",
        "the refusal of a condition on a volatile column",
        "arguments/volatile.py",
        (("    both = sorted(set(volatile) & set(columns))\n", "    both = []\n"),),
        pytest("test_volatile.py::test_what_cannot_be_left_out_is_refused_before_anything_is_uploaded"),
        "test_what_cannot_be_left_out_is_refused_before_anything_is_uploaded",
    ),
    Mutant(
        "volatile-told",
        "the look at what the first write left out",
        "table/mismatch.py",
        (("    if first != list(volatile):\n", "    if False:\n"),),
        pytest("test_volatile.py::test_a_repeat_that_leaves_out_other_columns_is_told_so"),
        "test_a_repeat_that_leaves_out_other_columns_is_told_so",
    ),
    Mutant(
        # Harmless for rows: two kinds differ as texts too.  The advice would be the wrong one.
        "kind-of-key",
        "the comparison of the kinds of the fingerprints of one key",
        "protocol/keys.py",
        (("    if committed and _kind(committed) != _kind(offered):\n", "    if False:\n"),),
        OWN,
        "test_fingerprints_of_two_kinds_are_told_apart",
    ),
    Mutant(
        "damaged-upload",
        "the comparison of what was uploaded with what was sent",
        S3,
        (("        if etag not in (None, digest.hexdigest()):\n", "        if False:\n"),),
        OWN,
        "test_a_damaged_upload_is_not_believed",
    ),
    Mutant(
        "damaged-download",
        "the comparison of what was downloaded with what was uploaded",
        S3,
        (("        if byte_range is None and self._etags_are_md5 and", "        if False and"),),
        OWN,
        "test_a_damaged_download_is_not_believed",
    ),
    Mutant(
        "pages-of-locks",
        "the second page of the lock table's query",
        DYNAMODB,
        (('            if not answer.get("LastEvaluatedKey"):\n', "            if True:\n"),),
        OWN,
        "test_every_page_of_the_lock_tables_query_is_read",
    ),
    Mutant(
        "pages-of-listings",
        "the second page of a listing",
        S3,
        (('or not page.get("IsTruncated")', "or True"),),
        OWN,
        "test_every_page_of_a_listing_is_read",
    ),
)
