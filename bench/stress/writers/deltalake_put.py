"""Writes with deltalake as it comes, by ``write_deltalake``; its storage options decide how it commits.

Run with deltalake 1.6.6 this is the conditional-PUT writer; with 0.22.3 and
``AWS_S3_ALLOW_UNSAFE_RENAME`` or ``AWS_S3_LOCKING_PROVIDER=dynamodb`` it is the old fleet.
Its errors say nothing certain about the table, so they are recorded as unknown.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

import common


def main() -> None:
    """Append by deltalake until the plan is done."""
    config = common.read_config()
    writer = common.Writer(config)
    from deltalake import write_deltalake

    def append(rows: list[Any], key: str | None) -> dict[str, Any]:
        options = dict(config["storage_options"])
        write_deltalake(config["table"], common.to_arrow(rows), mode="append", storage_options=options)
        return {}

    # The first write of a process takes a second of CPU for the engine's start: before the start line.
    with tempfile.TemporaryDirectory() as folder:
        write_deltalake(folder, common.to_arrow(common.history.make_rows(0, 0, 0, 1)))
    writer.run(append)


main()
