"""Applies a change log with safewrite, from pandas, Arrow, polars or dicts; each batch has its key.

The plan's kills and pauses fall between the effects of its commits, by their names.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

import change_common
import change_log
import common

import safewrite as sw

MODULES = {"pandas": "pandas", "polars": "polars", "arrow": "pyarrow", "dicts": "pyarrow"}


def to_frame(rows: list[Any], frame: str) -> Any:
    """The changes as the frame that the plan names."""
    table = change_log.to_arrow(rows)
    if frame == "pandas":
        import pandas as pd

        return table.to_pandas(types_mapper=pd.ArrowDtype)  # keeps NaN and NULL apart
    if frame == "polars":
        import polars as pl

        return pl.from_arrow(table)
    return table.to_pylist() if frame == "dicts" else table


def work(config: dict[str, Any]) -> None:
    """Deliver until the plan is done."""
    writer = change_common.ChangeWriter(config)
    table = common.open_by_safewrite(config)
    common.set_traps(table.world, writer)

    def apply(rows: list[Any], key: str | None) -> dict[str, Any]:
        try:
            receipt = table.apply_changes(to_frame(rows, config["frame"]), key=key, **change_common.HOW)
        except sw.NotCommittedError as error:
            lasting = (sw.WouldAlterError, sw.InvalidInputError, sw.ReplayMismatchError, sw.UnsafeConfigError)
            raise common.NotWrittenError(error, retriable=not isinstance(error, lasting)) from error
        return {
            "version": receipt.version, "tries": receipt.attempts, "outcome": str(receipt.outcome),
            "changes": dict(receipt.changes or {}),
        }  # fmt: skip

    writer.run(apply)


def main() -> None:
    """Import what the frames need, then work in a child that may be killed."""
    config = common.read_config()
    importlib.import_module(MODULES[config["frame"]])
    importlib.import_module("botocore.httpsession")
    for module in common.ICEBERG_MODULES[config["catalog"]["type"]] if "catalog" in config else ():
        importlib.import_module(module)
    change_common.log_of(config)  # each child has it then
    common.in_children(lambda: work(config))


main()
