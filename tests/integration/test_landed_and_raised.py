"""A library that raises in the middle of a write, or after it: an ack stays an ack, and every error is one of ours."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest

import safewrite as sw
from safewrite.delta import upkeep
from safewrite.testing.steps import At, Recorder, Side
from tests.integration.places import Place, once, rows
from tests.sampling import some

VERBS: dict[str, Callable[[sw.Table], sw.Receipt]] = {
    "append": lambda table: table.append(rows(7), key="event"),
    "append in a stream": lambda table: table.append(rows(7), txn=("app", 7)),
    "overwrite": lambda table: table.overwrite(rows(7), where="id = 7", key="event"),
    "delete": lambda table: table.delete("id = 0", key="event"),
}
ERRORS = [
    RuntimeError("cannot schedule new futures"),
    pa.ArrowInvalid("no"),
    OSError(28, "no space"),
    KeyError("x"),
]


def prepared(place: Place, template: Place | None = None) -> sw.Table:
    """A table; a local one has nine versions, so that its next write makes a checkpoint, and may be a copy."""
    if template is not None and place.arbiter == "local":
        shutil.copytree(template.uri, place.uri)
        return place.open(checkpoints=True)
    table = place.open(create=True, checkpoints=True)
    table.append(rows(0, 1), key="before")
    for number in others(place):
        table.append(rows(number), key=f"before-{number}")
    return table


def others(place: Place) -> list[int]:
    return [*range(102, 111)] if place.arbiter == "local" else []


def expected(place: Place, verb: str) -> Any:
    return once(*others(place), 1) if verb == "delete" else once(*others(place), 0, 1, 7)


SAMPLED_VERBS = some(product(("object-store", "dynamodb"), VERBS), every=2)


@pytest.mark.sweep(
    "dynamodb-delete",
    "local-append",
    "local-append in a stream",
    "local-delete",
    "object-store-overwrite",
    "local-overwrite",
    "object-store-append",
)
@pytest.mark.parametrize(("arbiter", "verb"), [*product(["local"], VERBS), *SAMPLED_VERBS])
def test_whatever_is_raised_at_any_step_the_rows_are_there_once_or_not_at_all(
    new_place: Callable[[str], Place], arbiter: str, verb: str
) -> None:
    template, place = new_place(arbiter), new_place(arbiter)
    prepared(template)
    table = prepared(place, template)
    table.world = recorder = Recorder(table.world)
    VERBS[verb](table)
    assert "commit.put_commit" in recorder.steps
    assert ("checkpoint.put" in recorder.steps) is (arbiter == "local")
    for number, step in enumerate(recorder.steps):
        place = new_place(arbiter)
        table = prepared(place, template)
        check(place, table, verb, step, "before" if number % 2 else "after", ERRORS[number % len(ERRORS)])


def check(  # noqa: PLR0917 - one caller, just above
    place: Place, table: sw.Table, verb: str, step: str, side: Side, error: Exception
) -> None:
    """One write in which a library raises at a step, and its repeat."""

    def fail() -> None:
        raise error

    table.world = trap = At(table.world, step, side, fail)
    receipt = raised = None
    try:
        receipt = VERBS[verb](table)
    except sw.SafewriteError as caught:
        raised = caught
    assert trap.reached, step
    there = place.ids() == expected(place, verb)
    assert there or receipt is None, (step, side)
    assert not (there and isinstance(raised, sw.NotCommittedError)), (step, side, raised)
    again = VERBS[verb](place.open())
    assert receipt is None or again.outcome == "already_committed", (step, side)
    assert place.ids() == expected(place, verb) == place.replayed_ids(), (step, side)


def test_a_checkpoint_that_cannot_be_made_unmakes_no_ack(tmp_path: Path) -> None:
    """Faults A6: actions of another engine that our checkpoint stumbles over."""
    path = tmp_path / "t"
    deltalake.write_deltalake(path, rows(0))
    log = path / "_delta_log" / "00000000000000000001.json"
    log.write_text(
        json.dumps(
            {
                "add": {
                    "path": "gone.parquet",
                    "partitionValues": {},
                    "size": [1],
                    "modificationTime": 1,
                    "dataChange": True,
                }
            }
        )
        + "\n"
    )
    table = sw.open(path)
    done = [table.append(rows(number)) for number in range(2, 12)]
    assert [receipt.version for receipt in done] == list(range(2, 12))
    upkeep.finish()
    assert not list((path / "_delta_log").glob("*.checkpoint.parquet"))
    with pytest.raises(sw.UnsupportedTableError, match="no checkpoint can hold"):
        table.checkpoint()


@pytest.mark.parametrize(
    "action",
    [
        {
            "add": {
                "path": "f",
                "partitionValues": {},
                "size": 1,
                "modificationTime": "5",
                "dataChange": True,
                "tags": {"x": 1},
            }
        },
        {"txn": {"appId": "other", "version": "5", "lastUpdated": "7"}},
        {
            "add": {
                "path": "f",
                "partitionValues": {"p": 5},
                "size": 1,
                "modificationTime": 5,
                "dataChange": True,
                "stats": {"numRecords": 1},
            }
        },
    ],
    ids=["tags and times", "txn", "partition values and statistics"],
)
def test_loose_types_of_another_engine_are_read_as_java_reads_them(
    tmp_path: Path, action: dict[str, Any]
) -> None:
    path = tmp_path / "t"
    deltalake.write_deltalake(path, rows(0))
    (path / "_delta_log" / "00000000000000000001.json").write_text(json.dumps(action) + "\n")
    table = sw.open(path)
    for number in range(2, 12):
        table.append(rows(number))
    upkeep.finish()
    assert list((path / "_delta_log").glob("*10.checkpoint.parquet"))
    assert sw.open(path).append(rows(99)).version == 12


def test_domain_metadata_of_another_engine_survives_our_checkpoints_and_deletes(tmp_path: Path) -> None:
    """Faults A7: the configuration of a domain is a text, and that of a table a map."""
    path = tmp_path / "t"
    deltalake.write_deltalake(path, rows(0), configuration={"delta.checkpointInterval": "10"})
    log = path / "_delta_log"
    first = [json.loads(line) for line in (log / f"{0:020d}.json").read_text().splitlines()]
    for action in first:
        if "protocol" in action:
            action["protocol"] = {
                "minReaderVersion": 1,
                "minWriterVersion": 7,
                "writerFeatures": ["domainMetadata"],
            }
    domain = {"domain": "mine", "configuration": '{"a":1}', "removed": False}
    first.append({"domainMetadata": domain})
    (log / f"{0:020d}.json").write_text("\n".join(map(json.dumps, first)) + "\n")
    deltalake.DeltaTable(path).create_checkpoint()
    table = sw.open(path)
    for number in range(1, 11):
        table.append(rows(number))
    assert table.delete("id = 3").version == 11
    upkeep.finish()
    assert (log / f"{10:020d}.checkpoint.parquet").exists()
    import pyarrow.parquet as pq

    kept = (
        pq.read_table(log / f"{10:020d}.checkpoint.parquet").column("domainMetadata").drop_null().to_pylist()
    )
    assert kept == [domain]
    assert Place(str(path), "local").ids() == once(*(n for n in range(11) if n != 3))
