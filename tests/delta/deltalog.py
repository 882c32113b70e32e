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
