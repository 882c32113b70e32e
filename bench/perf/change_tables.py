"""Makes the tables and the batches that changes by key are timed on, on local disk, and reads them back."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    import pyarrow as pa

RECENT, SCATTERED = "recent keys", "scattered keys"
Keys = Literal["recent keys", "scattered keys"]
RECENT_SHARE = 20
"""Recent keys are those of this part of the table: its newest twentieth."""
TABLE, NAMESPACE = "bench.t", "bench"
SHARES = {"u": 0.6, "d": 0.2, "c": 0.2}
"""Of a batch: updates, deletes, inserts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchPlan:
    """A table of ``rows`` in ``files``, and ``rounds`` batches of ``changes``."""

    rows: int
    files: int
    changes: int
    rounds: int

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for another process."""
        return asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Load(BatchPlan):
    """Batches of recent or of scattered keys, in rows of so many further ``columns``."""

    keys: Keys
    columns: int = 0
    """Further columns of a row: by turns a number that does not repeat and a text of 24 signs."""


def schema(columns: int = 0) -> pa.Schema:
    """The table's columns: a key, the sequence of its last change, and values; with so many ``columns`` more."""
    import pyarrow as pa

    return pa.schema(
        [
            ("id", pa.int64()),
            ("lsn", pa.int64()),
            ("name", pa.string()),
            ("amount", pa.float64()),
            ("at", pa.timestamp("us", "UTC")),
            *((f"more_{number}", pa.string() if number % 2 else pa.float64()) for number in range(columns)),
        ]
    )


def rows_of(ids: Any, lsn: int, columns: int = 0) -> pa.Table:
    """Rows of these ids."""
    import numpy as np
    import pyarrow as pa

    at = np.datetime64("2026-01-01", "us") + ids.astype("timedelta64[s]")
    names = pa.array(np.char.add("customer-", ids.astype("U")))
    more = [_more(ids, number) for number in range(columns)]
    values = [ids, np.full(len(ids), lsn), names, (ids * 7919 + lsn) % 10_007 / 7, at, *more]
    kinds = schema(columns)
    return pa.table([pa.array(v).cast(f.type) for v, f in zip(values, kinds, strict=True)], schema=kinds)


def _more(ids: Any, number: int) -> Any:
    """Values of a further column, of which hardly two are alike."""
    import numpy as np

    drawn = np.random.default_rng([number, int(ids[0]) + 1]).integers(0, 2**63, len(ids))
    return np.char.mod("text of %016x", drawn) if number % 2 else drawn / 3


def touched_bytes(load: Load) -> int:
    """What a file of the table takes in memory, decoded."""
    return int(next(base(load)).nbytes)


def base(load: Load) -> Iterator[pa.Table]:
    """The rows of each file, in the order of their ids."""
    import numpy as np

    for ids in np.array_split(np.arange(load.rows), load.files):
        yield rows_of(ids, 1, load.columns)


def batch(load: Load, number: int) -> pa.Table:
    """One batch, every key once; no two batches have a key in common."""
    first = load.rows - load.rows // RECENT_SHARE if load.keys == RECENT else 0
    return drawn_batch(load, number, lambda ids: rows_of(ids, 2 + number, load.columns), first=first)


def drawn_batch(
    load: BatchPlan, number: int, rows_of_ids: Callable[[Any], pa.Table], *, first: int = 0
) -> pa.Table:
    """Updates and deletes of rows from ``first`` on, and inserts, in any order; no two batches have a row in common."""
    import numpy as np
    import pyarrow as pa

    rng = np.random.default_rng([number, load.rows])
    sizes = {op: int(share * load.changes) for op, share in SHARES.items()}
    mine = np.arange(first + number, load.rows, load.rounds)
    there = rng.choice(mine, sizes["u"] + sizes["d"], replace=False)
    new = load.rows + number * sizes["c"] + np.arange(sizes["c"])
    table = rows_of_ids(np.concatenate([there, new]))
    ops = np.repeat(list(sizes), list(sizes.values()))
    return table.append_column("op", pa.array(ops)).take(pa.array(rng.permutation(table.num_rows)))


def wanted(load: Load) -> dict[str, int]:
    """What the table must add up to after all batches."""
    return added_up(load, (batch(load, number) for number in range(load.rounds)), "id")


def added_up(load: BatchPlan, batches: Iterable[pa.Table], ids_in: str) -> dict[str, int]:
    """What a table adds up to after all batches, whose rows have their numbers in the column ``ids_in``."""
    import pyarrow.compute as pc

    rows, ids, lsns = load.rows, load.rows * (load.rows - 1) // 2, load.rows
    for number, table in enumerate(batches):
        for op, sign, old in (("c", 1, 0), ("d", -1, 1), ("u", 0, 1)):
            part = table.filter(pc.equal(table.column("op"), op))
            rows += sign * part.num_rows
            ids += sign * (pc.sum(part.column(ids_in)).as_py() or 0)
            lsns += (0 if op == "d" else (2 + number) * part.num_rows) - old * part.num_rows
    return {"rows": rows, "ids": ids, "lsns": lsns}


def found(table: pa.Table) -> dict[str, int]:
    """What a table adds up to."""
    import pyarrow.compute as pc

    return {
        "rows": table.num_rows, "ids": pc.sum(table.column("id")).as_py(), "lsns": pc.sum(table.column("lsn")).as_py(),
    }  # fmt: skip


def catalog(folder: Path) -> Any:
    """PyIceberg's catalog of a folder: SQLite, and files next to it."""
    from pyiceberg.catalog.sql import SqlCatalog

    return SqlCatalog(**properties(folder))


def properties(folder: Path) -> dict[str, str]:
    """What opens this catalog."""
    return {
        "name": "local", "type": "sql", "uri": f"sqlite:///{folder}/catalog.db", "warehouse": folder.as_uri(),
    }  # fmt: skip


def make_delta(load: Load, folder: Path, *, vectors: bool = False) -> None:
    """Write the table by deltalake; with ``vectors`` it then wants deletion vectors, as after Spark's ALTER TABLE."""
    from deltalake import write_deltalake

    for part in base(load):
        write_deltalake(str(folder), part, mode="append")
    if vectors:
        want_vectors(folder / "_delta_log")


def want_vectors(log: Path) -> None:
    """deltalake writes no table that has the feature."""
    first = [json.loads(line) for line in (log / f"{0:020}.json").read_text().splitlines()]
    (metadata,) = [action["metaData"] for action in first if "metaData" in action]
    features = {"readerFeatures": ["deletionVectors"], "writerFeatures": ["deletionVectors"]}
    actions: list[dict[str, Any]] = [
        {"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, **features}},
        {"metaData": {**metadata, "configuration": {"delta.enableDeletionVectors": "true"}}},
    ]
    newest = max(int(path.stem) for path in log.glob("*.json"))
    (log / f"{newest + 1:020}.json").write_text("".join(json.dumps(one) + "\n" for one in actions))


def make_iceberg(load: Load, folder: Path, mode: str = "copy-on-write", version: int = 2) -> None:
    """Write the table by PyIceberg; ``mode`` says whether its files are rewritten, or their rows marked as gone.

    PyIceberg makes no table of format version 3: such a one is made by safewrite.
    """
    folder.mkdir(parents=True)
    if version == 2:
        fill_iceberg(load, catalog(folder), mode)
        return
    import safewrite as sw

    modes = {"write.merge.mode": mode, "write.delete.mode": mode}
    given: dict[str, Any] = {"catalog": properties(folder), "properties": modes, "format_version": version}
    table = sw.create(TABLE, schema(load.columns), create_namespace=True, **given)
    for part in base(load):
        table.append(part)


def fill_iceberg(load: Load, here: Any, mode: str) -> None:
    """The same in a catalog, which is closed then."""
    here.create_namespace(NAMESPACE)
    table = here.create_table(
        TABLE, schema(load.columns), properties={"write.merge.mode": mode, "write.delete.mode": mode}
    )
    for part in base(load):
        table.append(part)
    here.close()


def read_delta(folder: Path) -> dict[str, int]:
    """What deltalake's query engine reads, which knows deletion vectors."""
    import pyarrow as pa
    from deltalake import DeltaTable, QueryBuilder

    asked = QueryBuilder().register("t", DeltaTable(str(folder))).execute("SELECT id, lsn FROM t")
    return found(pa.table(asked.read_all()))


def read_iceberg(folder: Path) -> dict[str, int]:
    """What PyIceberg reads."""
    here = catalog(folder)
    try:
        return found(here.load_table(TABLE).scan(selected_fields=("id", "lsn")).to_arrow())
    finally:
        here.close()
