"""Takes the files that DMS writes of a small shop to bronze and silver, twice: `python -m examples.medallion.shop FOLDER`."""

from __future__ import annotations

import csv
import io
import json
import random
import sys
from pathlib import Path
from typing import Any

from safewrite.medallion import Pipeline, verify

TABLES: dict[str, dict[str, str]] = {
    "shop.customers": {"id": "int64", "name": "string", "city": "string"},
    "shop.products": {"id": "int64", "name": "string", "price": "decimal(10,2)"},
    "shop.orders": {"id": "int64", "customer": "int64", "product": "int64", "pieces": "int32"},
}
CITIES = ("Aarhus", "Łódź", "São Paulo", "New York, NY")
Row = list[Any]


class Shop:
    """A database of three tables, and the files that DMS makes of it."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder, self.random = folder, random.Random(seed)
        self.rows: dict[str, dict[int, Row]] = {name: {} for name in TABLES}
        self.log: dict[str, list[Row]] = {name: [] for name in TABLES}
        self.number, self.minute = 20261101_000000_00 * 10**19, 0
        for name in TABLES:
            for key in range(1, 31):
                self.rows[name][key] = self.row(name, key)

    def row(self, name: str, key: int) -> Row:
        draw = self.random
        if name == "shop.customers":
            return [key, f"customer {key}", draw.choice(CITIES)]
        if name == "shop.products":
            return [key, f'size "{draw.randrange(40)}"', f"{draw.randrange(10_000) / 100:.2f}"]
        return [key, draw.randrange(1, 31), draw.randrange(1, 31), draw.randrange(1, 9)]

    def full_load(self) -> None:
        for name, rows in self.rows.items():
            self.write(
                name,
                "LOAD00000001",
                [*TABLES[name], "AR_H_CHANGE_SEQ"],
                [[*row, "NULL"] for row in rows.values()],
            )

    def trade(self, changes: int) -> None:
        """Rows come, change and go."""
        for _ in range(changes):
            name = self.random.choice(list(TABLES))
            rows, kind = self.rows[name], self.random.choice("IUUD")
            if kind == "I":
                key = max(rows) + 1
                rows[key] = self.row(name, key)
                row = rows[key]
            else:
                key = self.random.choice(list(rows))
                row = rows[key] = self.row(name, key)
                if kind == "D":
                    del rows[key]
            self.number += self.random.randrange(1, 100)
            self.log[name].append([kind, *row, self.number])

    def write_changes(self) -> None:
        """The changes since the last time, shuffled: their sequence orders them, not their place."""
        self.minute += 1
        for name, changes in self.log.items():
            self.random.shuffle(changes)
            if changes:
                self.write(
                    name,
                    f"20261101-00{self.minute:02}00000",
                    ["Op", *TABLES[name], "AR_H_CHANGE_SEQ"],
                    changes,
                )
            self.log[name] = []

    def write(self, name: str, file: str, columns: list[str], rows: list[Row]) -> None:
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows([columns, *rows])
        place = self.folder / name.replace(".", "/") / f"{file}.csv"
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text.getvalue(), encoding="utf-8")


def configuration(folder: Path) -> dict[str, Any]:
    """The job: what all tables share, and the columns of each."""
    return {
        "job": "shop",
        "raw": {"location": f"{folder}/raw"},
        "state": f"{folder}/state",
        "quarantine": f"{folder}/quarantine",
        "defaults": {
            "format": "delta",
            "keys": ["id"],
            "bronze": f"{folder}/bronze/{{schema}}/{{table}}",
            "silver": f"{folder}/silver/{{schema}}/{{table}}",
            "files": {"kind": "csv", "header": True, "change_seq": "AR_H_CHANGE_SEQ"},
        },
        "tables": {
            name: {"columns": columns, "quality": {"not_null": list(columns), "ranges": {"price": [0, None]}}}
            if name == "shop.products"
            else {"columns": columns}
            for name, columns in TABLES.items()
        },
    }


def main(folder: str, seed: int = 1) -> Shop:
    """Load, trade, run, trade again, run again; silver is the shop, as the last lines say."""
    place = Path(folder).resolve()
    shop = Shop(place / "raw", seed)
    place.mkdir(parents=True, exist_ok=True)
    config = place / "job.json"
    config.write_text(json.dumps(configuration(place), indent=1))
    shop.full_load()
    for _ in range(2):
        shop.trade(100)
        shop.write_changes()
        run = Pipeline(config).run()
        for table in run.tables:
            print(
                f"{table.table}: {table.landed.rows} rows landed; {table.refined.changes} {table.error or ''}"
            )
        if not run.ok:
            sys.exit("The run failed, as told above.")
    audits = verify(Pipeline(config))
    for audit in audits:
        told = "all adds up" if audit.clean else [*audit.flaws, audit.error]
        print(f"{audit.table}: {audit.silver_rows} rows in silver, {told}")
    if not all(audit.clean for audit in audits):
        sys.exit("Silver is not what the files say, as told above.")
    return shop


if __name__ == "__main__":
    main(sys.argv[1])
