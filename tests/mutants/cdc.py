"""The protections of events that are read by columns: each mutant takes one away, and its killer must notice."""

from __future__ import annotations

from tests.mutants.killers import Mutant, alone

BLOCKS, AVRO = alone("cdc/test_blocks.py"), alone("cdc/test_blocks_avro.py")
READ, COLUMNS, PLACING, FORMS = "cdc/blocks.py", "cdc/columns.py", "cdc/placing.py", "cdc/forms.py"
KEYS = "test_keys_deletes_and_tombstones_are_read_alike"
VALUES = "test_values_are_read_alike"
STRANGE = "test_one_strange_record_among_many_does_not_slow_the_others"
BYTES = "test_bytes_that_are_no_events_are_dead_letters_or_ignored_alike"
SNAPSHOTS = "test_snapshots_and_what_was_under_way_are_ordered_alike"


CDC_MUTANTS = (
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
        (("        plain = ~_is_moved(batch) & ~empty\n", "        plain = ~empty\n"),),
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
        (("        table.validate(full=True)  # texts are UTF-8\n", ""),),
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
        "cdc/beginnings.py",
        (("        if len(kinds) > 1:\n", "        if False:\n"),),
        BLOCKS,
        SNAPSHOTS,
    ),
    Mutant(
        "cdc-avro-unfit",
        "the second reading of bytes that do not fit their schema",
        FORMS,
        (("                fit[place] = False\n", "                pass\n"),),
        AVRO,
        "test_bytes_that_are_of_no_schema_are_dead_letters_alike",
    ),
    Mutant(
        "cdc-avro-unknown",
        "the second question about a schema id that was not known",
        "cdc/avro.py",
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
)
