"""Compacts a Delta table by deltalake, and writes a checkpoint, while others apply changes to it."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import common


def main() -> None:
    """Do the chore again and again until the plan is done; a conflict with a rival is no end of it."""
    config = common.read_config()
    writer = common.Writer(config)
    from deltalake import DeltaTable

    def compact(round_: int) -> str | None:
        table = DeltaTable(config["table"], storage_options=dict(config["storage_options"]))
        done = table.optimize.compact()
        if not done["numFilesAdded"]:
            return None
        table.update_incremental()
        table.create_checkpoint()
        return f"{done['numFilesRemoved']} files into {done['numFilesAdded']}"

    writer.run_chore(config["chore"], compact)


main()
