"""RESTORE leaves ``txn`` actions: who goes on from a position whose rows it took out is refused (I12)."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

import safewrite
from safewrite import ConflictError, Kind
from safewrite.delta import opening
from safewrite.delta.log.restore import NOWHERE, Restore, undone_by

SCHEMA = pa.schema([("id", pa.int64()), ("lsn", pa.int64())])
Restoring = Callable[[str, int], None]


def rows(*ids: int) -> pa.Table:
    return pa.table({"id": list(ids), "lsn": list(ids)}, schema=SCHEMA)


@pytest.fixture
def uri(tmp_path: Path) -> str:
    """A table of three batches, one id each, in versions 1 to 3; position 3."""
    uri = str(tmp_path / "table")
    table = safewrite.create(uri, SCHEMA)
    for number in range(3):
        table.append(rows(number), key=f"batch-{number}", positions={"src": (number or None, number + 1)})
    assert table.positions() == {"src": 3}
    return uri


def ids(uri: str) -> list[int]:
    return sorted(DeltaTable(uri).to_pyarrow_table()["id"].to_pylist())


def by_deltalake(uri: str, version: int) -> None:
    DeltaTable(uri).restore(version)


def by_spark(uri: str, version: int) -> None:
    rewritten(uri, version, {"version": version, "timestamp": None})


def by_spark_to_a_time(uri: str, version: int) -> None:
    rewritten(uri, version, {"version": None, "timestamp": "2026-11-23 00:00:00"})


def rewritten(uri: str, version: int, parameters: dict[str, object]) -> None:
    """A RESTORE whose ``commitInfo`` is as Spark writes it."""
    by_deltalake(uri, version)
    path = max(Path(uri, "_delta_log").glob("*.json"))
    actions = [json.loads(line) for line in path.read_text().splitlines()]
    for action in actions:
        if "commitInfo" in action:
            action["commitInfo"]["operationParameters"] = parameters
    path.write_text("".join(json.dumps(action) + "\n" for action in actions))


RESTORING = [by_deltalake, by_spark, by_spark_to_a_time]


@pytest.mark.sweep(
    "opened anew",
    "read whole-held-by_spark_to_a_time",
    "behind a checkpoint-held-by_spark",
    "read whole-held-by_deltalake",
)
@pytest.mark.parametrize("restore", RESTORING)
@pytest.mark.parametrize("held", [True, False], ids=["held", "opened anew"])
@pytest.mark.parametrize("checkpoint", [False, True], ids=["read whole", "behind a checkpoint"])
def test_no_batch_follows_a_position_whose_rows_were_restored_away(
    uri: str, restore: Restoring, held: bool, checkpoint: bool
) -> None:
    table = safewrite.open(uri)
    restore(uri, 2)
    if checkpoint:
        DeltaTable(uri).create_checkpoint()
    if not held:  # as a new process opens it
        opening._remembered.clear()
        table = safewrite.open(uri)
    with pytest.raises(
        ConflictError, match=r"Version 4 restored the table .*declare it by a commit of no rows"
    ) as refused:
        table.append(rows(3), key="batch-3", positions={"src": (3, 4)})
    assert refused.value.kind == Kind.POSITION_MOVED
    with pytest.raises(ConflictError, match="Version 4 restored"):
        table.append(rows(), key="idle", positions={"src": (3, 4)})
    with pytest.raises(ConflictError, match="Version 4 restored"):
        table.apply_changes(
            rows(3), keys=["id"], sequence_by=["lsn"], key="change", positions={"src": (3, 4)}
        )
    assert ids(uri) == [0, 1]
    table.append(rows(), key="declared", positions={"src": (3, 2)})
    table.append(rows(2, 3), key="batches 2 and 3", positions={"src": (2, 4)})
    assert ids(uri) == [0, 1, 2, 3]
    assert safewrite.open(uri).positions() == {"src": 4}


def test_a_restore_that_left_the_rows_is_followed(uri: str) -> None:
    table = safewrite.open(uri)
    table.append(rows(9), key="another")
    by_deltalake(uri, 3)
    table.append(rows(3), key="batch-3", positions={"src": (3, 4)})
    assert ids(uri) == [0, 1, 2, 3]


def test_a_restore_that_was_restored_is_followed(uri: str) -> None:
    by_deltalake(uri, 1)
    by_deltalake(uri, 3)
    safewrite.open(uri).append(rows(3), key="batch-3", positions={"src": (3, 4)})
    assert ids(uri) == [0, 1, 2, 3]


def test_a_position_may_be_declared_where_it_stands_and_other_sources_go_on(uri: str) -> None:
    table = safewrite.open(uri)
    by_deltalake(uri, 2)
    table.append(rows(7), key="other", positions={"other": (None, 1)})
    table.append(rows(8), key="no source")
    table.append(rows(), key="declared", positions={"src": (3, 3)})
    table.append(rows(3), key="batch-3", positions={"src": (3, 4)})
    assert ids(uri) == [0, 1, 3, 7, 8]


def test_a_restore_that_lands_while_the_batch_is_written_is_seen(
    uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from safewrite.delta.write import write

    table = safewrite.open(uri)
    stage = write.stage

    def staged(*given: object, **more: object) -> object:
        by_deltalake(uri, 2)
        return stage(*given, **more)

    monkeypatch.setattr(write, "stage", staged)
    with pytest.raises(ConflictError, match="Version 4 restored"):
        table.append(rows(3), key="batch-3", positions={"src": (3, 4)})
    assert ids(uri) == [0, 1]


@pytest.mark.parametrize(
    ("version", "restores", "undone"),
    [
        (3, [], None),
        (3, [Restore(4, 3)], None),
        (3, [Restore(4, 2)], Restore(4, 2)),
        (5, [Restore(4, 2)], None),
        (3, [Restore(4, 2), Restore(5, 3)], None),
        (3, [Restore(4, 2), Restore(6, 5)], Restore(4, 2)),
        (5, [Restore(4, 2), Restore(6, 3)], Restore(6, 3)),
        (3, [Restore(4, 2), Restore(6, 3), Restore(7, 5)], Restore(4, 2)),
        (0, [Restore(4, NOWHERE)], Restore(4, NOWHERE)),
    ],
)
def test_what_a_version_did_is_in_effect_along_what_was_brought_back(
    version: int, restores: list[Restore], undone: Restore | None
) -> None:
    assert undone_by(version, restores) == undone
    assert undone_by(version, restores[::-1]) == undone
