"""Turns features of a Delta table on by its log, as their makers do, and checks what each commit after that must tell.

None of it is safewrite's code: the format's text says what the log has.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from safewrite.testing.crosscheck.log_files import commits_of
from safewrite.testing.crosscheck.oracle import ID, ProgramOracle
from safewrite.testing.crosscheck.program import Column
from safewrite.testing.crosscheck.promises import must

FEATURES = (
    "mapping by name", "mapping by id", "row tracking", "commit times", "vectors", "feed", "check", "generated", "default",
    "clustering", "v2 checkpoints", "materialized",
)  # fmt: skip
NEXT, STATE = "next_id", "state"
"""Columns that the table computes: ``id + 1``, and a text that rows get which lack it."""
_BELOW = 25
_READERS = {
    "mapping by name": "columnMapping",
    "mapping by id": "columnMapping",
    "vectors": "deletionVectors",
    "v2 checkpoints": "v2Checkpoint",
}
_WRITERS = {
    **_READERS, "row tracking": "rowTracking", "commit times": "inCommitTimestamp", "feed": "changeDataFeed", "check": "checkConstraints",
    "generated": "generatedColumns", "default": "allowColumnDefaults", "clustering": "clustering",
    "materialized": "materializePartitionColumns",
}  # fmt: skip
_PROPERTIES: Mapping[str, Mapping[str, str]] = {
    "mapping by name": {"delta.columnMapping.mode": "name"},
    "mapping by id": {"delta.columnMapping.mode": "id"},
    "row tracking": {
        "delta.enableRowTracking": "true", "delta.rowTracking.materializedRowIdColumnName": "_row-id-col",
        "delta.rowTracking.materializedRowCommitVersionColumnName": "_row-commit-version-col",
    },
    "commit times": {
        "delta.enableInCommitTimestamps": "true", "delta.inCommitTimestampEnablementVersion": "1",
        "delta.inCommitTimestampEnablementTimestamp": "1700000000000",
    },
    "vectors": {"delta.enableDeletionVectors": "true"},
    "feed": {"delta.enableChangeDataFeed": "true"},
    "check": {"delta.constraints.few": f"{ID} < {_BELOW}"},
    "v2 checkpoints": {"delta.checkpointPolicy": "v2"},
}  # fmt: skip
_COMPUTED = {
    "generated": (Column(NEXT, "int64"), "long", {"delta.generationExpression": f"{ID} + 1"}),
    "default": (Column(STATE, "string"), "string", {"CURRENT_DEFAULT": "'new'"}),
}


def turn_on(root: Path, features: Sequence[str], oracle: ProgramOracle) -> None:
    """Commit version 1 of an empty table, which turns features on."""
    log = root / "_delta_log"
    lines = [json.loads(line) for line in (log / f"{0:020d}.json").read_text("utf-8").splitlines()]
    protocol = next(one["protocol"] for one in lines if "protocol" in one)
    metadata = next(one["metaData"] for one in lines if "metaData" in one)
    schema = json.loads(metadata["schemaString"])
    for name in features:
        metadata["configuration"].update(_PROPERTIES.get(name, {}))
        if name in _COMPUTED:
            column, kind, told = _COMPUTED[name]
            schema["fields"].append(
                {"name": column.name, "type": kind, "nullable": True, "metadata": dict(told)}
            )
            oracle.compute(column)
    if any(name.startswith("mapping") for name in features):
        metadata["configuration"]["delta.columnMapping.maxColumnId"] = str(_name_columns(schema, 0))
    if "check" in features:
        oracle.below = _BELOW
    metadata["schemaString"] = json.dumps(schema)
    actions: list[dict[str, Any]] = [{"protocol": _protocol(protocol, features)}, {"metaData": metadata}]
    if "clustering" in features:
        named: dict[str, Any] = next((one for one in schema["fields"] if one["name"] == ID), {})
        physical = named.get("metadata", {}).get("delta.columnMapping.physicalName", ID)
        what = {"clusteringColumns": [[physical]], "domainName": "delta.clustering"}
        domain = {"domain": "delta.clustering", "configuration": json.dumps(what), "removed": False}
        actions.append({"domainMetadata": domain})
    info: dict[str, Any] = {
        "timestamp": 1700000000000,
        "operation": "SET TBLPROPERTIES",
        "engineInfo": "by hand",
    }
    if "commit times" in features:
        info["inCommitTimestamp"] = 1700000000000
    with (log / f"{1:020d}.json").open("x") as file:
        file.writelines(json.dumps(one) + "\n" for one in [{"commitInfo": info}, *actions])


def _protocol(before: Mapping[str, Any], features: Sequence[str]) -> dict[str, Any]:
    readers = {*(before.get("readerFeatures") or ()), *(_READERS[one] for one in features if one in _READERS)}
    writers = {
        *(before.get("writerFeatures") or ()),
        "appendOnly",
        "invariants",
        *(_WRITERS[one] for one in features),
        *readers,
    }
    if writers & {"rowTracking", "clustering"}:
        writers.add("domainMetadata")
    found: dict[str, Any] = {
        "minReaderVersion": before["minReaderVersion"],
        "minWriterVersion": 7,
        "writerFeatures": sorted(writers),
    }
    if readers:
        found |= {"minReaderVersion": 3, "readerFeatures": sorted(readers)}
    return found


def _name_columns(kind: Any, last: int) -> int:
    """Give every field an id and a name in files; the last id."""
    if not isinstance(kind, dict):
        return last
    for field in kind.get("fields", ()):
        last += 1
        field.setdefault("metadata", {}).update({
            "delta.columnMapping.id": last, "delta.columnMapping.physicalName": f"col-{last:04d}",
        })  # fmt: skip
        last = _name_columns(field["type"], last)
    for inner in ("elementType", "keyType", "valueType"):
        last = _name_columns(kind.get(inner), last)
    return last


# --- what commits must tell -----------------------------------------------------------------------------
def check_commits(root: Path, features: Sequence[str]) -> None:
    """Check what every commit must tell of its time, the ids of rows, and statistics of clustered columns.

    Raises:
        BrokenPromiseError: one does not.
    """
    time, mark = 0, -1
    for version, lines in commits_of(root):
        adds = [one["add"] for one in lines if "add" in one]
        if "commit times" in features and version:
            told = lines[0].get("commitInfo", {}).get("inCommitTimestamp")
            must(
                told is not None and told > time,
                f"version {version} tells the time {told}, and the one before {time}",
            )
            time = told
        if "row tracking" in features and version > 1:
            mark = _numbered(version, lines, mark)
        if "clustering" in features and version > 1:
            stats = [json.loads(one.get("stats") or "{}") for one in adds]
            must(
                all("nullCount" in one for one in stats),
                f"a file of version {version} has no statistics of the clustered column",
            )


def _numbered(version: int, lines: Sequence[Mapping[str, Any]], mark: int) -> int:
    """The mark after a commit, of which each new file has ids above the mark before."""
    gone = {one["remove"]["path"] for one in lines if "remove" in one}
    new = [one["add"] for one in lines if "add" in one and one["add"]["path"] not in gone]
    last = mark
    for add in sorted(new, key=lambda one: int(one.get("baseRowId", -1))):
        must(
            add.get("baseRowId", -1) > last,
            f"a file of version {version} begins at the row id {add.get('baseRowId')}, and {last} was given",
        )
        must(
            add.get("defaultRowCommitVersion") == version,
            f"a file of version {version} says {add.get('defaultRowCommitVersion')}",
        )
        last = add["baseRowId"] + json.loads(add["stats"])["numRecords"] - 1
    told = [
        json.loads(one["domainMetadata"]["configuration"])
        for one in lines
        if one.get("domainMetadata", {}).get("domain") == "delta.rowTracking"
    ]
    if told:
        must(
            told[-1]["rowIdHighWaterMark"] == last,
            f"version {version} says that {told[-1]} was given last, and {last} was",
        )
    must(bool(told) or last == mark, f"version {version} gives row ids, and does not say which was the last")
    return last
