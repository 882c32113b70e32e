"""Writes with safewrite, from pandas, Arrow or polars, with a key, a txn or neither.

The plan's kills and pauses fall between the effects of its commits, by their names.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

import common

import safewrite as sw


def to_frame(rows: list[Any], frame: str) -> Any:
    """The rows as the frame that the plan names."""
    table = common.to_arrow(rows)
    if frame == "pandas":
        return table.to_pandas()
    if frame == "polars":
        import polars as pl

        return pl.from_arrow(table)
    return table


def work(config: dict[str, Any]) -> None:
    """Append by safewrite until the plan is done."""
    writer = common.Writer(config)
    table = common.open_by_safewrite(config)
    common.set_traps(table.world, writer)

    def append(rows: list[Any], key: str | None) -> dict[str, Any]:
        name: dict[str, Any] = {"key": key} if key is not None else {}
        if config.get("txn"):
            name = {"txn": (f"{config['arm']}-{writer.number}", rows[0].seq)}
        if "schema_mode" in config:
            name["schema_mode"] = config["schema_mode"]
        try:
            receipt = table.append(to_frame(rows, config["frame"]), **name)
        except sw.NotCommittedError as error:
            lasting = (sw.WouldAlterError, sw.InvalidInputError, sw.ReplayMismatchError, sw.UnsafeConfigError)
            raise common.NotWrittenError(error, retriable=not isinstance(error, lasting)) from error
        return {"version": receipt.version, "tries": receipt.attempts, "outcome": str(receipt.outcome)}

    writer.run(append)


def main() -> None:
    """Import what the frames need, then work in a child that may be killed."""
    config = common.read_config()
    importlib.import_module(config["frame"].replace("arrow", "pyarrow"))
    importlib.import_module("botocore.httpsession")
    for module in common.ICEBERG_MODULES[config["catalog"]["type"]] if "catalog" in config else ():
        importlib.import_module(module)
    common.in_children(lambda: work(config))


main()
