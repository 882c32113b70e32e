"""Makes the calls on Delta tables with awswrangler itself, in its own environment, and prints what they left."""

from __future__ import annotations

import json
import sys
import tempfile
import warnings
from collections.abc import Callable
from typing import Any

from bench.wrangler.calls import DELTA, REFUSED, Call


def read(path: str) -> dict[str, Any]:
    """A Delta table's types, partitions and rows, as deltalake reads them."""
    import deltalake

    table = deltalake.DeltaTable(path)
    found = table.to_pyarrow_table()
    fields = json.loads(table.schema().to_json())["fields"]
    return {
        "types": {one["name"]: one["type"] for one in fields},
        "partitions": table.metadata().partition_columns,
        "rows": sorted(map(repr, found.select(sorted(found.column_names)).to_pylist())),
    }


def left(call: Call, write: Callable[..., Any]) -> Any:
    """What is left of a table after a call: its content, or that the call was refused."""
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/t"
        for frame, given in call.first:
            write(frame(), path, **given)
        try:
            write(call.frame(), path, **call.given)
        except Exception as error:  # noqa: BLE001 - that it is refused is the answer
            return {
                REFUSED: f"{type(error).__name__}: {error}"
                if isinstance(error, ValueError)
                else type(error).__name__
            }
        return read(path)


def main() -> None:
    """Print what awswrangler's calls left, as JSON."""
    import boto3
    from awswrangler.s3 import to_deltalake  # type: ignore[import-not-found]

    warnings.filterwarnings("ignore")
    session = boto3.Session("nobody", "nothing", region_name="us-east-1")

    def write(frame: Any, path: str, **given: Any) -> None:
        to_deltalake(frame, path, boto3_session=session, **given)

    json.dump({call.says: left(call, write) for call in DELTA}, sys.stdout, default=repr)


if __name__ == "__main__":
    main()
