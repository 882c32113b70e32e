"""A Delta table made by hand: one commit that holds what the code under test encoded."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable

from safewrite.delta.data.datafiles import DataFile, encode
from safewrite.delta.log import schema as delta_schema
from safewrite.frames.prepare import prepare


def write_table(
    root: Path,
    data: object,
    *,
    target: pa.Schema | None = None,
    partition_by: Sequence[str] = (),
    **options: Any,
) -> list[DataFile]:
    """Prepare, encode and commit ``data`` as version 0 of a table at ``root``."""
    prepared = prepare(data, target, partition_by=partition_by)
    files = list(encode(prepared, partition_by=partition_by, write_id="w1", **options))
    for file in files:
        path = root / file.path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(file.body)
    features = list(delta_schema.features_needed(prepared.schema))
    protocol: dict[str, object] = {"minReaderVersion": 1, "minWriterVersion": 2}
    if features:
        protocol = {
            "minReaderVersion": 3,
            "minWriterVersion": 7,
            "readerFeatures": features,
            "writerFeatures": features,
        }
    metadata = {
        "id": "5fba94ed-9794-4965-ba6e-6ee3c0d22af9",
        "format": {"provider": "parquet", "options": {}},
        "schemaString": delta_schema.from_arrow(prepared.schema),
        "partitionColumns": list(partition_by),
        "configuration": {},
        "createdTime": 0,
    }
    actions: list[dict[str, object]] = [{"protocol": protocol}, {"metaData": metadata}]
    actions += [file.add_action(0) for file in files]
    log = root / "_delta_log"
    log.mkdir(parents=True)
    (log / "00000000000000000000.json").write_text("".join(json.dumps(a) + "\n" for a in actions))
    return files


def read_table(root: Path, order: str) -> pa.Table:
    """What deltalake reads, sorted by ``order``."""
    table = pa.table(DeltaTable(str(root)).to_pyarrow_table())
    return table.sort_by(order)


def renamed_by_spark(log: Path, name: str, to: str) -> None:
    """As its ALTER TABLE does: the table is mapped first, and files keep the name that they have."""
    actions = [
        json.loads(line) for path in sorted(log.glob("*.json")) for line in path.read_text().splitlines()
    ]
    protocol, metadata = (
        [one[kind] for one in actions if kind in one][-1] for kind in ("protocol", "metaData")
    )
    schema = json.loads(metadata["schemaString"])
    for number, field in enumerate(schema["fields"], 1):
        field["metadata"] |= {
            "delta.columnMapping.id": number, "delta.columnMapping.physicalName": field["name"]
        }  # fmt: skip
        field["name"] = to if field["name"] == name else field["name"]
    mode = {"delta.columnMapping.mode": "name", "delta.columnMapping.maxColumnId": str(len(schema["fields"]))}
    configuration = metadata["configuration"] | mode
    mapped = metadata | {"schemaString": json.dumps(schema), "configuration": configuration}
    known = {*protocol.get("writerFeatures", ["appendOnly", "invariants"]), "columnMapping"}
    both = {*protocol.get("readerFeatures", []), "columnMapping"}
    versions = {"minReaderVersion": 3, "minWriterVersion": 7}
    features = {"readerFeatures": sorted(both), "writerFeatures": sorted(known)}
    lines = [
        {"commitInfo": {"operation": "RENAME COLUMN"}},
        {"protocol": versions | features},
        {"metaData": mapped},
    ]
    newest = max(int(path.stem) for path in log.glob("*.json"))
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (log / f"{newest + 1:020d}.json").write_text(text)
