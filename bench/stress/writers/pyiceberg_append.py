"""Writes with PyIceberg as it comes, by ``load_table().append()``, with the retries that it brings.

Its errors say nothing certain about the table, so they are recorded as unknown; the plan says what its caller
then does.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

import common


def work(config: dict[str, Any]) -> None:
    """Append by PyIceberg until the plan is done."""
    from pyiceberg.catalog import load_catalog

    writer = common.Writer(config)
    catalog = load_catalog(**config["catalog"])

    def append(rows: list[Any], key: str | None) -> dict[str, Any]:
        catalog.load_table(config["table"]).append(common.to_arrow(rows))
        return {}

    writer.run(append)


def main() -> None:
    """Import what PyIceberg needs, then work in a child that may be killed."""
    config = common.read_config()
    for module in common.ICEBERG_MODULES[config["catalog"]["type"]]:
        importlib.import_module(module)
    common.in_children(lambda: work(config))


main()
