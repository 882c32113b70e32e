"""Makes the tables of random keys and the batches that updates are timed on, and reads them back."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from .change_tables import SHARES, TABLE, catalog, found, want_vectors

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa

    Ids = npt.NDArray[np.int64]

UUID, NUMBER = "uuid text", "random int"
Keys = Literal["uuid text", "random int"]
NAMESPACE = TABLE.partition(".")[0]
_DASHES = (8, 13, 18, 23)
_TEXT_LENGTH = 36


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """A table of ``rows`` in ``files``, and ``rounds`` batches of ``changes`` to rows of all files."""

    rows: int
    files: int
    changes: int
    rounds: int
    keys: Keys

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for another process."""
        return asdict(self)


def keys_of(ids: Ids, kind: Keys) -> pa.Array:
    """The keys of the rows of these numbers: no two alike, and in no order."""
    import numpy as np
    import pyarrow as pa

    first = _mixed(ids.astype(np.uint64))
    if kind == NUMBER:
        return pa.array(first.view(np.int64))
    words = np.stack([first, _mixed(first)], axis=1)
    hexed = np.frombuffer(b"".join(b"%02x" % byte for byte in range(256)), "S2")
    digits = hexed[words.view(np.uint8)].view(np.uint8).reshape(len(ids), 32)
    text = np.full((len(ids), _TEXT_LENGTH), ord("-"), np.uint8)
    text[:, [at for at in range(_TEXT_LENGTH) if at not in _DASHES]] = digits
    ends = np.arange(len(ids) + 1, dtype=np.int32) * _TEXT_LENGTH
    return pa.StringArray.from_buffers(len(ids), pa.py_buffer(ends), pa.py_buffer(text))


def _mixed(numbers: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """The finaliser of splitmix64, which has another result for each number."""
    import numpy as np

    numbers = numbers + np.uint64(0x9E3779B97F4A7C15)
    numbers = (numbers ^ (numbers >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    numbers = (numbers ^ (numbers >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return numbers ^ (numbers >> np.uint64(31))


def rows_of(ids: Ids, lsn: int, kind: Keys) -> pa.Table:
    """Small rows of these numbers."""
    import numpy as np
    import pyarrow as pa

    return pa.table(
        {
            "id": keys_of(ids, kind),
            "lsn": np.full(len(ids), lsn),
            "number": ids,
            "amount": (ids * 7919 + lsn) % 10_007 / 7,
        }
    )


def base(load: Load) -> Iterator[pa.Table]:
    """The rows of each file."""
    import numpy as np

    for ids in np.array_split(np.arange(load.rows), load.files):
        yield rows_of(ids, 1, load.keys)


def batch(load: Load, number: int) -> pa.Table:
    """One batch, every key once; no two batches have a key in common."""
    import numpy as np
    import pyarrow as pa

    rng = np.random.default_rng([number, load.rows])
    sizes = {op: int(share * load.changes) for op, share in SHARES.items()}
    mine = np.arange(number, load.rows, load.rounds)
    there = rng.choice(mine, sizes["u"] + sizes["d"], replace=False)
    new = load.rows + number * sizes["c"] + np.arange(sizes["c"])
    table = rows_of(np.concatenate([there, new]), 2 + number, load.keys)
    ops = np.repeat(list(sizes), list(sizes.values()))
    return table.append_column("op", pa.array(ops)).take(pa.array(rng.permutation(table.num_rows)))


def wanted(load: Load) -> dict[str, int]:
    """What the table must add up to after all batches."""
    import pyarrow.compute as pc

    rows, ids, lsns = load.rows, load.rows * (load.rows - 1) // 2, load.rows
    for number in range(load.rounds):
        table = batch(load, number)
        for op, sign, old in (("c", 1, 0), ("d", -1, 1), ("u", 0, 1)):
            part = table.filter(pc.equal(table.column("op"), op))
            rows += sign * part.num_rows
            ids += sign * (pc.sum(part.column("number")).as_py() or 0)
            lsns += (0 if op == "d" else (2 + number) * part.num_rows) - old * part.num_rows
    return {"rows": rows, "ids": ids, "lsns": lsns}


def make_delta(load: Load, place: str, options: dict[str, str] | None = None, *, vectors: bool) -> None:
    """Write the table by deltalake; with ``vectors`` it then wants deletion vectors."""
    from deltalake import write_deltalake

    for part in base(load):
        write_deltalake(place, part, mode="append", storage_options=options)
    if vectors:
        want_vectors(Path(place) / "_delta_log")


def make_iceberg(load: Load, folder: Path, mode: str) -> None:
    """Write the table by PyIceberg; ``mode`` says whether its files are rewritten, or their rows marked as gone."""
    folder.mkdir(parents=True)
    here = catalog(folder)
    here.create_namespace(NAMESPACE)
    schema = next(base(load)).schema
    table = here.create_table(TABLE, schema, properties={"write.merge.mode": mode})
    for part in base(load):
        table.append(part)
    here.close()


def read_delta(folder: Path) -> dict[str, int]:
    """What deltalake's query engine reads, which knows deletion vectors."""
    import pyarrow as pa
    from deltalake import DeltaTable, QueryBuilder

    asked = QueryBuilder().register("t", DeltaTable(str(folder)))
    return found(pa.table(asked.execute("SELECT number AS id, lsn FROM t").read_all()))


def read_iceberg(folder: Path) -> dict[str, int]:
    """What PyIceberg reads."""
    here = catalog(folder)
    try:
        read = here.load_table(TABLE).scan(selected_fields=("number", "lsn")).to_arrow()
        return found(read.rename_columns({"number": "id"}))
    finally:
        here.close()
