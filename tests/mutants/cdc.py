"""The protections of events that are read by columns: each mutant takes one away, and its killer must notice."""

from __future__ import annotations

from tests.mutants.killers import Mutant, alone

BLOCKS, AVRO, BARE = (alone(f"cdc/test_blocks{form}.py") for form in ("", "_avro", "_bare"))
SOURCES, COMPACTED, IDENTITY = (
    alone(f"cdc/test_{name}.py") for name in ("sources", "compacted", "replica_identity")
)
READ, COLUMNS, PLACING, FORMS = (
    "cdc/envelopes/by_columns.py",
    "cdc/connect/columns.py",
    "cdc/landing/project_columns.py",
    "cdc/connect/converters.py",
)
INFERENCE, INFERRED = "cdc/connect/inference.py", "test_values_get_their_types_alike"
KEYS = "test_keys_deletes_and_tombstones_are_read_alike"
VALUES = "test_values_are_read_alike"
STRANGE = "test_one_strange_record_among_many_does_not_slow_the_others"
BYTES = "test_bytes_that_are_no_events_are_dead_letters_or_ignored_alike"
SNAPSHOTS = "test_snapshots_and_what_was_under_way_are_ordered_alike"

MISFITS = alone("cdc/test_misfits.py")
KEY_MISFIT = "test_a_key_that_does_not_fit_lands_as_a_text_or_not_at_all"


CDC_MUTANTS = (
    Mutant(
        "cdc-before",
        "the row before a change that is read as far as it is needed",
        "cdc/landing/rows.py",
        (
            (
                "                    if is_whole:\n                        raise\n",
                "                    raise\n",
            ),
        ),
        MISFITS,
        "test_a_row_before_a_change_is_read_as_far_as_it_is_needed",
    ),
    Mutant(
        "cdc-floored-key",
        "keys that no setting makes one of two",
        "cdc/config/column_rules.py",
        (('            mode = "dead-letter"  # two rows would become one\n', "            pass\n"),),
        MISFITS,
        KEY_MISFIT,
    ),
    Mutant(
        "cdc-base64",
        "the one reading of decimals without a schema",
        "cdc/config/column_rules.py",
        (("            if self.decimals is None:\n", "            if False:\n"),),
        MISFITS,
        "test_a_text_of_a_decimal_without_a_schema_is_read_in_one_way",
    ),
    Mutant(
        "cdc-flags",
        "the doubt of lists of booleans that may be what the source left out",
        "cdc/connect/placeholder.py",
        (("            if value == self._flags:\n", "            if False:\n"),),
        MISFITS,
        "test_a_list_that_may_be_the_placeholder_or_a_value_is_a_dead_letter_under_each_setting",
    ),
    Mutant(
        "cdc-scale",
        "the limit of digits behind the point of a number that becomes a text",
        "cdc/connect/logical_types.py",
        (("    if abs(scale) > SCALE_MAX:\n", "    if abs(scale) > 10**6:\n"),),
        MISFITS,
        "test_a_number_of_a_scale_that_fills_the_memory_is_a_dead_letter",
    ),
    Mutant(
        "cdc-moved",
        "the doubt of updates that took their row from another key",
        PLACING,
        (("    doubts.where(pc.and_kleene(whole, moved))\n", ""),),
        BLOCKS,
        KEYS,
    ),
    Mutant(
        "cdc-no-key",
        "the doubt of changes without a key",
        PLACING,
        (("        doubts.where(pc.is_null(found[name]))\n    _doubt", "    _doubt"),),
        BLOCKS,
        KEYS,
    ),
    Mutant(
        "cdc-header",
        "the look for headers that tell of a changed key",
        READ,
        (("has_value & ~batch.has_header(self._envelope.row_headers)\n", "has_value\n"),),
        BLOCKS,
        KEYS,
    ),
    Mutant(
        "cdc-placeholder",
        "the doubt of values that the source left out",
        COLUMNS,
        (("            doubts.where(pc.is_in(values, known))\n", "            pass\n"),),
        BLOCKS,
        VALUES,
    ),
    Mutant(
        "cdc-range",
        "the doubt of times that are out of range",
        COLUMNS,
        (("    doubts.where(beyond)\n", ""),),
        BLOCKS,
        VALUES,
    ),
    Mutant(
        "cdc-doubted",
        "the second reading of records in doubt",
        READ,
        (("                found.others.append(others)\n", ""),),
        BLOCKS,
        VALUES,
    ),
    Mutant(
        "cdc-unsuited",
        "the second reading of records that hold up others",
        READ,
        (("                    found.others.append(chosen)\n", "                    pass\n"),),
        BLOCKS,
        STRANGE,
    ),
    Mutant(
        "cdc-unknown-field",
        "the refusal of fields that the schema lacks",
        FORMS,
        (('unexpected_field_behavior="error"', 'unexpected_field_behavior="ignore"'),),
        BLOCKS,
        BYTES,
    ),
    Mutant(
        "cdc-utf-8",
        "the check of texts",
        FORMS,
        (("    table.validate(full=True)  # texts are UTF-8\n", ""),),
        BLOCKS,
        BYTES,
    ),
    Mutant(
        "cdc-one-object",
        "the look at the ends of payloads",
        FORMS,
        (
            (
                "return found, np.logical_and.reduce([one.to_numpy(zero_copy_only=False) for one in ends])",
                "return found, np.ones(len(ends[0]), bool)",
            ),
        ),
        BLOCKS,
        "test_two_payloads_in_one_record_are_not_those_of_two_records",
    ),
    Mutant(
        "cdc-snapshots",
        "the order of a snapshot's rows among changes that were under way",
        "cdc/landing/snapshot_boundary.py",
        (("        if len(kinds) > 1:\n", "        if False:\n"),),
        BLOCKS,
        SNAPSHOTS,
    ),
    Mutant(
        "cdc-avro-unfit",
        "the second reading of bytes that do not fit their schema",
        FORMS,
        (("append(None)\n                fit[place] = False\n", "append(found[-1] if found else None)\n"),),
        AVRO,
        "test_bytes_that_are_of_no_schema_are_dead_letters_alike",
    ),
    Mutant(
        "cdc-avro-unknown",
        "the second question about a schema id that was not known",
        "cdc/connect/avro.py",
        (("        self._unknown.clear()\n", ""),),
        AVRO,
        "test_an_id_that_nobody_knows_is_asked_for_once_in_a_batch_and_again_in_the_next",
    ),
    Mutant(
        "cdc-avro-placeholder",
        "the doubt of bytes that the source left out",
        COLUMNS,
        (("known = pa.array([placeholder.raw] if", "known = pa.array([b'x'] if"),),
        AVRO,
        VALUES,
    ),
    Mutant(
        "cdc-inferred-digits",
        "the doubt of numbers that have more digits than a binary one",
        INFERENCE,
        (("            fit &= ~flags(pc.match_substring_regex(data, _LONG))\n", "            pass\n"),),
        BARE,
        INFERRED,
    ),
    Mutant(
        "cdc-inferred-lists",
        "the refusal of lists of numbers that may be written in more than one way",
        INFERENCE,
        (("        if items == _BINARY:\n", "        if False:\n"),),
        BARE,
        INFERRED,
    ),
    Mutant(
        "cdc-inferred-whole",
        "the doubt of whole numbers that are no binary ones",
        READ,
        (("            doubts.where(pc.greater_equal(pc.abs(column), _EXACT))\n", "            pass\n"),),
        BARE,
        INFERRED,
    ),
    Mutant(
        "cdc-inferred-point",
        "the refusal of binary numbers for columns of another type",
        PLACING,
        (("name in known or pc.all(", "pc.all("),),
        BARE,
        "test_whole_numbers_that_are_written_with_a_point_are_none_for_a_column_of_whole_numbers",
    ),
    Mutant(
        "cdc-inferred-decimal",
        "the doubt of decimals that were read as binary numbers",
        PLACING,
        (("        doubts.where(pc.match_substring_regex(batch.values(), _LONG))\n", "        pass\n"),),
        BARE,
        "test_decimals_are_those_that_were_written",
    ),
    Mutant(
        "cdc-inferred-key",
        "the doubt of keys that lack a field",
        READ,
        (("        doubts.where(pc.is_null(column))\n", "        pass\n"),),
        BARE,
        "test_a_key_that_lacks_a_field_is_read_by_itself",
    ),
    Mutant(
        "cdc-inferred-wrapped",
        "the look for a schema around what seems to have none",
        INFERENCE,
        (("or set(found) >= _WRAPPED:", "or False:"),),
        BARE,
        "test_keys_that_have_other_fields_are_read_one_by_one",
    ),
    Mutant(
        "cdc-inferred-apart",
        "the line between blocks whose types a schema names and others",
        READ,
        (("one.keys, one.is_inferred)", "one.keys)"),),
        BARE,
        "test_records_with_their_schema_and_without_are_of_one_batch",
    ),
    Mutant(
        "cdc-inferred-null",
        "that a column which is always NULL has no type",
        PLACING,
        (("        if batch.is_inferred\n        else", "        if False\n        else"),),
        BARE,
        "test_a_column_that_is_always_null_gets_no_type_and_one_that_comes_later_gets_one",
    ),
    Mutant(
        "cdc-dms-image",
        "the second reading of deletes that have a before-image",
        "cdc/envelopes/dms/event_columns.py",
        (("        doubts.where(pc.and_(deletes, has_image))\n", ""),),
        BARE,
        "test_changes_of_rows_are_read_alike",
    ),
    Mutant(
        "cdc-dms-load",
        "the position of rows of a full load, which is below all others",
        "cdc/envelopes/dms/event_columns.py",
        (("(LOWEST, None) if is_load", '("1", None) if is_load'),),
        BARE,
        "test_changes_of_rows_are_read_alike",
    ),
    Mutant(
        "cdc-source",
        "the refusal of a second source",
        "cdc/landing/origin.py",
        (("        return parts.get(None, ChangeSet()), letters\n", "        return given, []\n"),),
        SOURCES,
        "test_a_second_job_with_another_source_is_refused_too",
    ),
    Mutant(
        "cdc-source-guard",
        "the position that lets one commit of an epoch name its source",
        "cdc/landing/origin.py",
        (("of_epoch: (None, 1), f", "f"),),
        SOURCES,
        "test_two_jobs_that_begin_at_once_with_other_sources_do_not_both_begin",
    ),
    Mutant(
        "cdc-tombstone",
        "the look for tombstones whose delete did not come",
        "cdc/envelopes/tombstones.py",
        (("            yield place, False\n", "            pass\n"),),
        COMPACTED,
        "test_its_table_is_told_by_the_topic_or_by_its_key",
    ),
    Mutant(
        "cdc-tombstone-topic",
        "the question whether a table has rows of a tombstone's topic",
        "cdc/landing/ranking.py",
        (("        if record.topic not in self._topics:\n", "        if False:\n"),),
        COMPACTED,
        "test_a_tombstone_of_another_database_takes_no_row",
    ),
    Mutant(
        "cdc-rank",
        "the place of deletes that tell none",
        PLACING,
        (("        doubts.where(deletes)  # what orders", "        pass  # what orders"),),
        IDENTITY,
        "test_a_delete_without_a_value_that_orders_it_ranks_by_its_position",
    ),
    Mutant(
        "cdc-untold",
        "the doubt of updates that do not tell the key before them",
        PLACING,
        (('        doubts.unless(pc.equal(batch.data.column(OP), "c"))\n', "        pass\n"),),
        IDENTITY,
        "test_changes_that_do_not_tell_the_key_before_are_refused",
    ),
)
