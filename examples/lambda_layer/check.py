"""Writes a Delta table with nothing but a layer on the path; says what it did and where its modules came from.

    python -I -S examples/lambda_layer/check.py < config.json

The configuration has ``layer`` (its folder ``python``), ``uri``, and ``settings`` of ``safewrite.create``.
"""

from __future__ import annotations

import importlib
import json
import sys
import sysconfig
from pathlib import Path
from typing import Any


def message(message_id: str, body: Any) -> dict[str, Any]:
    """A record of SQS."""
    return {"eventSource": "aws:sqs", "messageId": message_id, "body": json.dumps(body), "attributes": {}}


def written(uri: str, settings: dict[str, Any]) -> dict[str, Any]:
    """Append, and let a handler answer two deliveries that share a message."""
    import pyarrow as pa

    import safewrite as sw
    from safewrite.aws_lambda import BatchWriter

    table = sw.create(uri, pa.schema([("id", pa.int64()), ("name", pa.string())]), **settings)
    receipt = table.append(pa.table({"id": [1], "name": ["one"]}), key="event-1")
    again = table.append([{"id": 1, "name": "one"}], key="event-1")
    handler = BatchWriter(table, rows=lambda record: record.body)
    two = message("m-2", [{"id": 2, "name": "two"}])
    first = handler({"Records": [two, message("m-3", [{"id": 3, "name": None}])]})
    second = handler({"Records": [two, message("m-4", [{"id": 4}, {"id": "x"}])]})
    return {"outcomes": [receipt.outcome, again.outcome], "answers": [first, second]}


def strangers(layer: str) -> list[str]:
    """Modules that came neither from the layer nor from Python itself."""
    own = (
        layer,
        sysconfig.get_path("stdlib"),
        sysconfig.get_path("platstdlib"),
        str(Path(__file__).resolve()),
    )
    found = [
        str(module.__file__) for module in list(sys.modules.values()) if getattr(module, "__file__", None)
    ]
    return sorted(
        path for path in found if not path.startswith(own) or "-packages" in path.removeprefix(layer)
    )


def extensions(layer: str) -> list[str]:
    """Import every compiled module of pyarrow that is left: none may need a library that is gone."""
    names = sorted(
        {f"pyarrow.{path.name.split('.')[0]}" for path in Path(layer, "pyarrow").glob("*.cpython-*.so")}
    )
    for name in names:
        importlib.import_module(name)
    return names


def main() -> None:
    """Run as the configuration says."""
    config = json.load(sys.stdin)
    layer = str(Path(config["layer"]).resolve())
    sys.path.insert(0, layer)
    said = written(config["uri"], config.get("settings", {}))
    print(json.dumps({**said, "strangers": strangers(layer), "extensions": extensions(layer)}))


if __name__ == "__main__":
    main()
