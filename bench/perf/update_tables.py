"""Makes the tables of random keys and the batches that updates are timed on, and reads them back."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from .change_tables import TABLE, BatchPlan, added_up, catalog, drawn_batch, found, want_vectors

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
class Load(BatchPlan):
    """Batches of changes to rows of all files, by keys of one kind."""

    keys: Keys


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
    return drawn_batch(load, number, lambda ids: rows_of(ids, 2 + number, load.keys))


def wanted(load: Load) -> dict[str, int]:
    """What the table must add up to after all batches."""
    return added_up(load, (batch(load, number) for number in range(load.rounds)), "number")


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
